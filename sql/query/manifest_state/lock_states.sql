-- Locks the states of manifests, in ascending order, and reads what jobs have changed in them.
select s.last_success_at, s.last_scheduled_for
from trax.manifest_state s
where s.manifest_id = any ($manifest_ids)
order by s.manifest_id
for update
