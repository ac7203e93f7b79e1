-- Returns the live jobs of a group.
select q.job_id
from trax.work_queue q
where q.group_name = $group
union all
select l.job_id
from trax.lease l
where l.group_name = $group
