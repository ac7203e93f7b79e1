-- Returns the task and the group of a job, wherever it is.
select q.task, q.group_name
from trax.work_queue q
where q.job_id = $job_id
union all
select l.task, l.group_name
from trax.lease l
where l.job_id = $job_id
union all
(
    select r.task, r.group_name
    from trax.run r
    where r.job_id = $job_id
    limit 1
)
