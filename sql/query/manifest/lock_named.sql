-- Locks the definitions of manifests that are about to change, in ascending order.
select m.manifest_id
from trax.manifest m
where m.name = any ($names)
order by m.manifest_id
for no key update
