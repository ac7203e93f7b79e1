-- Returns jobs after $after that wait for others.
select q.job_id
from trax.work_queue q
where q.waits_for = 'jobs'
    and q.job_id > $after
order by q.job_id
limit $at_most
