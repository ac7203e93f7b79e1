-- Makes a job claimable that is suspended until a signal is sent.
update trax.work_queue q
set waits_for = null,
    wait_until = null,
    run_at = $now
where q.job_id = $job_id
    and q.waits_for = 'signal'
returning q.lane_id, q.priority, q.job_id
