-- The id of a manifest. $1 name
select m.manifest_id
from trax.manifest m
where m.name = $1
