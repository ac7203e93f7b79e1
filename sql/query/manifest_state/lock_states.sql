-- Locks the states of manifests, in ascending order, and reads the columns that jobs change.
select s.last_success_at, s.last_scheduled_for
from trax.manifest_state s
where s.manifest_id = any ($manifest_ids)
order by s.manifest_id
for update
