-- Makes a job claimable that waits for its time, as if that had come. $1 job, $2 now
update trax.work_queue q
set waits_for = null,
    run_at = $2
where q.job_id = $1
    and q.waits_for = 'time'
returning q.lane_id, q.priority, q.job_id
