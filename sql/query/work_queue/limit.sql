-- States until when a job may wait to be claimed. $1 job, $2 now, $3 time limit in microseconds;
-- null is none
update trax.work_queue q
set expires_at = greatest(q.run_at, $2) + $3 * interval '1 microsecond'
where q.job_id = $1
