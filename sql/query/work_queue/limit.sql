-- Sets until when a job may wait to be claimed, from its time limit in microseconds; null is none.
update trax.work_queue q
set expires_at = greatest(q.run_at, $now) + $micros * interval '1 microsecond'
where q.job_id = $job_id
