-- The current states of jobs, which a producer may read, too. $1 job ids.
select
    j.job_id,
    j.state,
    j.attempt,
    j.task,
    j.run_at,
    j.worker,
    j.error,
    j.progress
from trax.get_jobs($1) j
order by j.job_id
