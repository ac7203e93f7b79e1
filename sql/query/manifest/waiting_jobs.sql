-- Returns the waiting jobs of manifests.
select q.job_id
from trax.work_queue q
where q.manifest_id = any ($manifest_ids)
