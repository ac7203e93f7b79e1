-- Drops the oldest admitted jobs of a group that wait and have not begun, as cancelled runs. Jobs
-- that other transactions have locked are skipped.
with victim as materialized (
    select a.number, q.job_id
    from trax.admission a
    cross join lateral (
        select w.job_id
        from trax.work_queue w
        where w.job_id = a.job_id
            and w.group_name = $group
            and w.attempts = 0
            and w.steps is null
            and w.manifest_id is null
            and (w.waits_for is null or w.waits_for in ('time', 'key'))
        for update skip locked
    ) q
    where a.group_name = $group
    order by a.number
    limit $count
), dropped as (
    delete from trax.work_queue q
    using victim v
    where q.job_id = v.job_id
    returning
        q.job_id, q.queued_at, q.run_at, q.priority, q.task, q.group_name, q.unique_key, q.concurrency_key, q.input,
        q.parent_job_id, q.version, q.rate, q.rate_key, q.cost, q.max_retries, q.timeout, q.retry_delay, q.trace, q.lane_id
), given_up as (
    delete from trax.admission a
    where a.group_name = $group
        and a.number = any (array(select v.number from victim v))
), recorded as (
    insert into trax.run (
        job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task, group_name, error, input,
        parent_job_id, version, rate, rate_key, cost, max_retries, timeout, retry_delay, concurrency_key, trace
    )
    select
        d.job_id, d.queued_at, d.run_at, $now, 0, d.priority, true, 'cancelled', d.task, d.group_name, $reason, d.input,
        d.parent_job_id, d.version, d.rate, d.rate_key, d.cost, d.max_retries, d.timeout, d.retry_delay, d.concurrency_key, d.trace
    from dropped d
)
select
    d.job_id, d.task, d.unique_key, d.concurrency_key, d.parent_job_id,
    case when d.rate is not null then d.lane_id end as rate_lane
from dropped d
