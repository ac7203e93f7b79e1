-- Keeps the definition of a manifest as it is until this transaction ends. $1 name
select m.manifest_id
from trax.manifest m
where m.name = $1
for share
