-- Keeps the definition of a manifest as it is until this transaction ends.
select m.manifest_id
from trax.manifest m
where m.name = $name
for share
