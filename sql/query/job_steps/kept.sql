-- Returns the steps of jobs that end.
select j.job_id, trax.kept_steps(j.job_id) as steps
from unnest($job_ids) j (job_id)
