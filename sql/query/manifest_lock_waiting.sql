-- Locks the waiting jobs of a manifest. $1 manifest
select q.job_id
from trax.work_queue q
where q.manifest_id = $1
order by q.job_id
for update
