-- Locks the waiting jobs of a manifest that no other transaction has locked.
select q.job_id
from trax.work_queue q
where q.manifest_id = $manifest_id
for update skip locked
