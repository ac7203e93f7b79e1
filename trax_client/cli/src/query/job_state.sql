-- The current states of jobs. $1 job ids.
select
    j.job_id,
    j.state,
    j.attempt,
    j.task,
    j.run_at,
    j.worker,
    j.error,
    j.progress
from trax.job j
where j.job_id = any ($1)
order by j.job_id
