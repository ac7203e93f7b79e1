-- Records attempts that did not complete, whose leases are locked; queues those with a retry time
-- again, and writes a dead letter for those with a reason. All but $now are parallel arrays. An
-- attempt that did not begin is not spent. $lost_input replaces an input that cannot be read.
-- Returns the jobs that can be claimed again at once.
with ended as (
    delete from trax.lease l
    using unnest($job_ids, $states, $failure_kinds, $errors, $details, $retry_times, $reasons, $begun, $acknowledged)
        as o (job_id, state, failure_kind, error, detail, retry_at, reason, begun, acknowledged)
    where l.job_id = o.job_id
    returning
        l.job_id, l.lane_id, l.queued_at, l.run_at, l.scheduled_for, l.expires_at, l.manifest_id,
        case when o.begun then l.started_at end as started_at,
        case when o.begun then l.attempt else l.attempt - 1 end as attempt, l.max_retries, l.priority, l.task, l.group_name, l.manifest, l.worker, l.timeout, l.retry_delay,
        l.unique_key, l.concurrency_key, l.input, l.trace, l.run_as, l.parent_job_id, l.version, l.rate, l.rate_key, l.cost,
        case
            when o.retry_at is null and exists (select from trax.step s where s.job_id = l.job_id)
                then trax.kept_steps(l.job_id)
        end as steps,
        o.state, o.failure_kind, o.error, o.detail, o.retry_at, o.reason, o.acknowledged
), recorded as (
    insert into trax.run (
        job_id, queued_at, run_at, scheduled_for, started_at, finished_at, manifest_id, attempt, priority, final,
        state, failure_kind, task, group_name, manifest, worker, error, input, detail,
        parent_job_id, steps, version, rate, rate_key, cost, max_retries, timeout, retry_delay, concurrency_key, trace
    )
    select
        e.job_id, e.queued_at, e.run_at, e.scheduled_for, e.started_at, $now, e.manifest_id, e.attempt, e.priority,
        e.retry_at is null, e.state, e.failure_kind, e.task, e.group_name, e.manifest, e.worker, e.error,
        coalesce($lost_input, e.input),
        e.detail, e.parent_job_id, e.steps, e.version, e.rate, e.rate_key, e.cost,
        e.max_retries, e.timeout, e.retry_delay, e.concurrency_key, e.trace
    from ended e
), queued_again as (
    insert into trax.work_queue (
        job_id, lane_id, queued_at, run_at, waits_for, scheduled_for, expires_at, manifest_id, attempts, max_retries,
        priority, task, group_name, manifest, timeout, retry_delay, unique_key, concurrency_key, input, trace, run_as,
        parent_job_id, version, rate, rate_key, cost, steps
    )
    overriding system value
    select
        e.job_id, e.lane_id, e.queued_at, e.retry_at, case when e.retry_at > $now then 'time' end, e.scheduled_for,
        e.expires_at, e.manifest_id, e.attempt, e.max_retries, e.priority, e.task, e.group_name, e.manifest, e.timeout,
        e.retry_delay, e.unique_key, e.concurrency_key, e.input, e.trace, e.run_as, e.parent_job_id,
        e.version, e.rate, e.rate_key, e.cost,
        (select nullif(count(*), 0) from trax.step s where s.job_id = e.job_id)
    from ended e
    where e.retry_at is not null
), buried as (
    insert into trax.dead_letter (
        job_id, manifest_id, attempts, max_retries, priority, created_at, manifest, task, group_name, timeout,
        retry_delay, unique_key, concurrency_key, reason, last_error, input, trace, run_as, steps,
        version, rate, rate_key, cost, undone, status, resolved_at, resolution_note
    )
    select
        e.job_id, e.manifest_id, e.attempt, e.max_retries, e.priority, $now, e.manifest, e.task, e.group_name, e.timeout,
        e.retry_delay, e.unique_key, e.concurrency_key, e.reason, e.error, e.input, e.trace, e.run_as, e.steps,
        e.version, e.rate, e.rate_key, e.cost, e.steps is not null and exists (select from trax.step s where s.job_id = e.job_id and s.undo is not null),
        case when e.acknowledged then 'acknowledged' else 'awaiting_intervention' end,
        case when e.acknowledged then $now end,
        case when e.acknowledged then 'on_final_failure of its task' end
    from ended e
    where e.reason is not null
    on conflict do nothing
)
select e.lane_id, e.priority, e.job_id
from ended e
where e.retry_at <= $now
