-- Ends jobs that by $ended_by waited longer than they may, except those of a manifest that another
-- transaction has locked, for which the change of the manifest would have to wait. Skipped jobs do
-- not hide others.
with due as materialized (
    select o.job_id
    from trax.work_queue o
    left join lateral (
        select m.manifest_id, m.run_at is not null as once
        from trax.manifest m
        where m.manifest_id = o.manifest_id
        offset 0
    ) m on true
    cross join lateral (
        select 1
        where m.manifest_id is null
            or not m.once
        union all
        select 1
        from (
            select
            from trax.manifest d
            where d.manifest_id = m.manifest_id
                and m.once
            for no key update skip locked
        ) d
    ) definition
    cross join lateral (
        select 1
        where m.manifest_id is null
        union all
        select 1
        from (
            select
            from trax.manifest_state t
            where t.manifest_id = m.manifest_id
            for update skip locked
        ) s
    ) state
    cross join lateral (
        select l.job_id
        from trax.work_queue l
        where l.job_id = o.job_id
            and l.expires_at <= $ended_by
        for update skip locked
    ) l
    where o.expires_at is not null
        and o.expires_at <= $ended_by
    order by o.expires_at
    limit $at_most
), expired as (
    delete from trax.work_queue q
    -- Not by ctid: a row that was changed since the snapshot is locked in its new version, but
    -- found by its old one.
    where q.job_id = any (array(select d.job_id from due d))
    returning
        q.job_id, q.queued_at, q.run_at, q.scheduled_for, q.manifest_id, q.attempts, q.max_retries, q.priority, q.task,
        q.group_name, q.manifest, q.timeout, q.retry_delay, q.unique_key, q.concurrency_key, q.input, q.trace, q.run_as,
        q.parent_job_id, q.version, q.rate, q.rate_key, q.cost, q.lane_id, case when q.steps > 0 then trax.kept_steps(q.job_id) end as steps,
        exists (
            select from trax.task t where t.name = q.task and t.on_final_failure = 'acknowledge'
        ) as acknowledged
), recorded as (
    insert into trax.run (
        job_id, queued_at, run_at, scheduled_for, finished_at, manifest_id, attempt, priority, final, state,
        failure_kind, task, group_name, manifest, error, input, parent_job_id, steps,
        version, rate, rate_key, cost, max_retries, timeout, retry_delay, concurrency_key, trace
    )
    select
        e.job_id, e.queued_at, e.run_at, e.scheduled_for, $now, e.manifest_id, e.attempts, e.priority, true, 'failed',
        'expired', e.task, e.group_name, e.manifest, 'waited longer than its queue time limit', e.input,
        e.parent_job_id, e.steps, e.version, e.rate, e.rate_key, e.cost,
        e.max_retries, e.timeout, e.retry_delay, e.concurrency_key, e.trace
    from expired e
), buried as (
    insert into trax.dead_letter (
        job_id, manifest_id, attempts, max_retries, priority, created_at, manifest, task, group_name, timeout,
        retry_delay, unique_key, concurrency_key, reason, last_error, input, trace, run_as, steps,
        version, rate, rate_key, cost, undone, status, resolved_at, resolution_note
    )
    select
        e.job_id, e.manifest_id, e.attempts, e.max_retries, e.priority, $now, e.manifest, e.task, e.group_name, e.timeout,
        e.retry_delay, e.unique_key, e.concurrency_key, 'waited longer than its queue time limit', null, e.input,
        e.trace, e.run_as, e.steps,
        e.version, e.rate, e.rate_key, e.cost, e.steps is not null and exists (select from trax.step s where s.job_id = e.job_id and s.undo is not null),
        case when e.acknowledged then 'acknowledged' else 'awaiting_intervention' end,
        case when e.acknowledged then $now end,
        case when e.acknowledged then 'on_final_failure of its task' end
    from expired e
    on conflict do nothing
)
select
    e.job_id, e.manifest_id, e.unique_key, e.concurrency_key, e.task, e.parent_job_id, e.acknowledged,
    case when e.rate is not null then e.lane_id end as rate_lane
from expired e
