-- Returns the live jobs of a manifest.
select q.job_id
from trax.work_queue q
where q.manifest_id = $manifest_id
union all
select l.job_id
from trax.lease l
where l.manifest_id = $manifest_id
