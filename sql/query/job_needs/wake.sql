-- Makes locked jobs claimable whose wait for other jobs is over, or lets them wait for their time.
-- The requeue of a dead letter may have given a job a new need before it was locked: unless one
-- need was enough, such a job goes on waiting.
update trax.work_queue q
set waits_for = case when q.run_at > $now then 'time' end,
    wait_until = null,
    run_at = greatest(q.run_at, $now)
from unnest($job_ids, $one_was_enough) d (job_id, one_was_enough)
where q.job_id = d.job_id
    and (
        d.one_was_enough
        or (
            select n.needed_job_id
            from trax.need n
            where n.job_id = d.job_id
            order by n.needed_job_id desc
            limit 1
        ) is null
    )
returning q.lane_id, q.priority, q.job_id
