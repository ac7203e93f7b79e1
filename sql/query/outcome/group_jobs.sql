-- The live jobs of a group. $1 group
select q.job_id
from trax.work_queue q
where q.group_name = $1
union all
select l.job_id
from trax.lease l
where l.group_name = $1
