-- A job in any state, with long values cut. $1 job id, $2 maximum characters of a value.
select
    j.job_id,
    j.state,
    j.attempt,
    j.task,
    pg_catalog.left(case when j.task = 'sql' then j.input ->> 'command' else pg_catalog.jsonb_pretty(j.input) end, $2) as input,
    pg_catalog.octet_length(j.input::text) as input_bytes,
    j.manifest,
    j.group_name,
    j.priority,
    j.run_at,
    j.scheduled_for,
    j.queued_at,
    j.started_at,
    j.finished_at,
    j.worker,
    pg_catalog.left(j.error, $2) as error,
    -- A text that a program has printed is shown as it was.
    pg_catalog.left(case pg_catalog.jsonb_typeof(j.output) when 'string' then j.output #>> '{}' else pg_catalog.jsonb_pretty(j.output) end, $2) as output,
    case
        when j.task = 'sql' and pg_catalog.octet_length(j.output::text) <= 1000000 then j.output::text
    end as sql_output,
    pg_catalog.octet_length(j.output::text) as output_bytes,
    pg_catalog.left(pg_catalog.jsonb_pretty(j.progress), $2) as progress,
    q.waits_for,
    j.parent_job_id,
    p.task as parent_task,
    p.state as parent_state,
    w.step as wait_step,
    w.kind as wait_kind,
    (w.wait ->> 'since')::timestamptz as wait_since,
    (w.wait ->> 'until')::timestamptz as wait_until,
    coalesce(w.wait ->> 'name', w.wait ->> 'mode') as waited_for,
    coalesce(q.unique_key, l.unique_key) as unique_key,
    coalesce(q.concurrency_key, l.concurrency_key) as concurrency_key,
    j.version,
    j.rate || coalesce(', key ' || j.rate_key, '') || ', cost ' || j.cost as rate,
    coalesce(q.max_retries, l.max_retries) as max_retries,
    pg_catalog.left(pg_catalog.jsonb_pretty(coalesce(q.trace, l.trace)), $2) as trace,
    l.lease_expires_at,
    coalesce(l.cancel_requested, false) as cancel_requested,
    d.id as dead_letter_id,
    d.status as dead_letter_status,
    d.reason as dead_letter_reason,
    d.requeued_job_id,
    coalesce(d.steps is not null, false) as dead_letter_has_steps,
    coalesce(d.undone, false) as dead_letter_is_undone
from trax.job j
left join trax.work_queue q on q.job_id = j.job_id
left join trax.lease l on l.job_id = j.job_id
left join trax.dead_letter d on d.job_id = j.job_id
left join lateral (
    select o.task, o.state
    from trax.job o
    where o.job_id = j.parent_job_id
    limit 1
) p on true
left join lateral (
    -- The wait in which the job is suspended. A job that is due later may have begun again.
    select s.step, s.kind, s.wait
    from trax.step s
    where s.job_id = q.job_id
        and s.recorded_at is null
        and s.kind = case q.waits_for when 'time' then 'sleep' else q.waits_for end
        and (s.kind <> 'sleep' or (s.wait ->> 'until')::timestamptz = q.run_at)
    order by s.step_id desc
    limit 1
) w on true
where j.job_id = $1
