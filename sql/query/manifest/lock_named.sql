-- Locks the definitions of manifests that are about to change or to go, in ascending order. $1
-- names
select m.manifest_id
from trax.manifest m
where m.name = any ($1)
order by m.manifest_id
for update
