-- Locks the definition of a manifest that is about to change; returns its id and its row.
select m.manifest_id, to_jsonb(m) as row
from trax.manifest m
where m.name = $name
for no key update
