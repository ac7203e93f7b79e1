-- The live jobs of a manifest. $1 manifest
select q.job_id
from trax.work_queue q
where q.manifest_id = $1
union all
select l.job_id
from trax.lease l
where l.manifest_id = $1
