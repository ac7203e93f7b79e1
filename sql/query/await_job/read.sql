-- Returns the current state and result of a job.
select j.state, j.output, j.error
from trax.job j
where j.job_id = $job_id
