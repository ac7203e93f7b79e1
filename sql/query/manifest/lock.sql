-- Locks the definition of a manifest that is about to change.
select m.manifest_id
from trax.manifest m
where m.name = $name
for no key update
