-- Returns how many jobs of a manifest may run at once.
select m.max_concurrency
from trax.manifest m
where m.manifest_id = $manifest_id
