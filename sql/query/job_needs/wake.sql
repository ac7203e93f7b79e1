-- Makes jobs claimable whose wait for other jobs is over, or lets them wait for their time.
update trax.work_queue q
set waits_for = case when q.run_at > $now then 'time' end,
    wait_until = null,
    run_at = greatest(q.run_at, $now)
where q.job_id = any ($job_ids)
returning q.lane_id, q.priority, q.job_id
