-- Locks the definition of a manifest that is about to change. $1 name
select m.manifest_id
from trax.manifest m
where m.name = $1
for update
