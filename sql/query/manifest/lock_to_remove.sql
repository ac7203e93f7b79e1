-- Locks manifests of which some are about to be removed, in ascending order.
select m.manifest_id
from trax.manifest m
where m.name = any ($names)
order by m.manifest_id
for update
