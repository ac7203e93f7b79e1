-- Locks the definitions of manifests that are about to change or to go, in ascending order.
select m.manifest_id
from trax.manifest m
where m.name = any ($names)
order by m.manifest_id
for update
