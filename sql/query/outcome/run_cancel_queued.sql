-- Cancels waiting jobs; locks them in ascending order. $reasons is empty, or has one for each of
-- them. A job that cannot be read ends without its input.
with locked as materialized (
    select o.job_id, w.reason
    from (
        select i.job_id, i.reason
        from unnest($job_ids, $reasons) i (job_id, reason)
        order by i.job_id
    ) w
    cross join lateral (
        select l.job_id
        from trax.work_queue l
        where l.job_id = w.job_id
        for update
    ) o
), cancelled as (
    delete from trax.work_queue q
    using locked k
    where q.job_id = k.job_id
    returning
        q.job_id, q.queued_at, q.run_at, q.scheduled_for, q.manifest_id, q.attempts, q.priority, q.task, q.group_name,
        q.manifest, q.unique_key, q.concurrency_key, q.input, q.parent_job_id, q.steps,
        q.version, k.reason, q.rate, q.rate_key, q.cost, q.max_retries, q.timeout, q.retry_delay, q.trace, q.lane_id
), recorded as (
    insert into trax.run (
        job_id, queued_at, run_at, scheduled_for, finished_at, manifest_id, attempt, priority, final, state, task,
        group_name, manifest, error, input, parent_job_id, steps, version, rate, rate_key, cost,
        max_retries, timeout, retry_delay, concurrency_key, trace
    )
    select
        c.job_id, c.queued_at, c.run_at, c.scheduled_for, $now, c.manifest_id, c.attempts, c.priority, true, 'cancelled',
        c.task, c.group_name, c.manifest, c.reason,
        coalesce(
            (select jsonb_build_object('unreadable', u.error) from trax.unreadable_job u where u.job_id = c.job_id),
            c.input
        ),
        c.parent_job_id, case when c.steps > 0 then trax.kept_steps(c.job_id) end, c.version, c.rate, c.rate_key, c.cost,
        c.max_retries, c.timeout, c.retry_delay, c.concurrency_key, c.trace
    from cancelled c
)
select c.job_id, c.manifest_id, c.unique_key, c.concurrency_key, c.task, c.parent_job_id, false as acknowledged,
    case when c.rate is not null then c.lane_id end as rate_lane
from cancelled c
