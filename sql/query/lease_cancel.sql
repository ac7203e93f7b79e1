-- Asks the worker of one job to stop. $1 job
update trax.lease l
set cancel_requested = true, cancelled = true
where l.job_id = $1
