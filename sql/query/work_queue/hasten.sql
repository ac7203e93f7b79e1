-- Makes a delayed job claimable, as if its time had come.
update trax.work_queue q
set waits_for = null,
    run_at = $now
where q.job_id = $job_id
    and q.waits_for = 'time'
returning q.lane_id, q.priority, q.job_id
