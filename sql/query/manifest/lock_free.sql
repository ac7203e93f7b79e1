-- Locks the waiting jobs of a manifest that nobody else has locked. $1 manifest
select q.job_id
from trax.work_queue q
where q.manifest_id = $1
for update skip locked
