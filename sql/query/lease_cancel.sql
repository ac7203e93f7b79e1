-- Asks the workers of jobs to stop. $1 jobs
update trax.lease l
set cancel_requested = true, cancelled = true
where l.job_id = any ($1)
