-- How many jobs of a manifest may run at once. $1 manifest
select m.max_concurrency
from trax.manifest m
where m.manifest_id = $1
