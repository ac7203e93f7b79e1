-- Locks the states of manifests, in ascending order.
select s.manifest_id
from trax.manifest_state s
where s.manifest_id = any ($manifest_ids)
order by s.manifest_id
for update
