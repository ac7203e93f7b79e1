-- Makes jobs claimable whose wait for other jobs is over: none is needed any more, or one was
-- enough.
update trax.work_queue q
set waits_for = null,
    wait_until = null,
    run_at = $now
where q.job_id = any (array(
    select w.job_id
    from trax.work_queue w
    where w.job_id = any ($job_ids)
        and w.waits_for = 'jobs'
        and (
            w.job_id = any ($enough)
            or not exists (select from trax.need n where n.job_id = w.job_id)
        )
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
