-- Locks the waiting jobs of manifests. $1 manifests
select q.job_id
from trax.work_queue q
where q.manifest_id = any ($1)
order by q.job_id
for update
