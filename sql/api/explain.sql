-- Why a manifest does or does not run now.

create function trax.explain_manifest(
    name text
)
returns table (
    reason text,
    detail text,
    since timestamptz,
    action text
)
language plpgsql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    m trax.manifest;
    s trax.manifest_state;
begin
    if explain_manifest.name is null then
        raise exception 'argument "name" must not be null'
            using errcode = '22004',
                detail = 'The argument "name" is null.',
                hint = 'Specify a value: name => ...';
    end if;
    select f.* into m from trax.manifest f where f.name = explain_manifest.name;
    if m.manifest_id is null then
        raise exception 'manifest "%" does not exist', explain_manifest.name
            using errcode = '42704',
                detail = format('No row of trax.manifest has the name "%s".', explain_manifest.name),
                hint = 'List the names with: select name from trax.manifest order by name';
    end if;
    select t.* into s from trax.manifest_state t where t.manifest_id = m.manifest_id;
    return query
    select 'disabled', coalesce(m.disabled_reason, 'It was switched off by hand.'), m.updated_at,
        format('select trax.enable_manifest(%L)', m.name)
    where not m.enabled;
    return query
    select 'group_disabled', format('Its group "%s" is switched off.', g.name), g.updated_at,
        format('select trax.configure_group(%L, enabled => true)', g.name)
    from trax.manifest_group g
    where g.name = m.group_name
        and not g.enabled;
    return query
    select 'dead_letter',
        format(
            'Job %s failed for good (%s): %s; requeue its dead letter, or acknowledge it with trax.acknowledge_dead_letter(%s).',
            d.job_id, d.reason, left(d.last_error, 200), d.id
        ),
        d.created_at, format('select trax.requeue_dead_letter(%s)', d.id)
    from trax.dead_letter d
    where d.manifest_id = m.manifest_id
        and d.status = 'awaiting_intervention'
        and m.on_dead_letter = 'stop';
    return query
    select 'queued',
        case
            when q.waits_for = 'time' and q.attempts > 0
                then format('Job %s waits for attempt %s, due at %s.', q.job_id, q.attempts + 1, q.run_at)
            when q.waits_for = 'time' then format('Job %s is due at %s.', q.job_id, q.run_at)
            when q.waits_for = 'key'
                then format('Job %s waits until a job with its concurrency key "%s" ends.', q.job_id, q.concurrency_key)
            when q.waits_for = 'manifest'
                then format('Job %s waits until another job of this manifest ends: %s may run at once.', q.job_id, m.max_concurrency)
            when q.run_as is not null
                then format(
                    'Job %s waits for an executor: %s statements run, at most %s at once in this database.',
                    q.job_id, (select count(*) from trax.lease l where l.run_as is not null),
                    coalesce(current_setting('trax.max_sql_workers', true), '2')
                )
            else format('Job %s waits for a worker of task "%s".', q.job_id, q.task)
        end,
        greatest(q.queued_at, least(q.run_at, clock_timestamp())),
        case
            when q.waits_for is not null then 'Nothing: wait.'
            when q.run_as is not null
                then 'See what runs: select job_id, run_as, worker, started_at from trax.lease where run_as is not null; then trax.cancel(job_id), or: '
                    || format('alter database %I set trax.max_sql_workers = ', current_database())
                    || 2 * greatest(current_setting('trax.max_sql_workers', true)::int, 1)
            else format('Run a worker that takes task "%s".', q.task)
        end
    from trax.work_queue q
    where q.manifest_id = m.manifest_id
    order by q.job_id;
    return query
    select 'executing', format('Worker "%s" executes job %s, attempt %s.', l.worker, l.job_id, l.attempt), l.started_at,
        case when l.cancel_requested then 'Nothing: its worker is asked to stop.' else 'Nothing: wait.' end
    from trax.lease l
    where l.manifest_id = m.manifest_id
    order by l.job_id;
    return query
    select 'evaluation_failed', s.evaluation_error, s.evaluation_failed_since,
        case
            when s.evaluation_failures > 0 then 'Correct the definition with trax.schedule().'
            else 'Fix what the server lacks; the next cycles try again.'
        end
    where s.evaluation_error is not null;
    return query
    select 'waits_for_parent', format('Manifest "%s" has not succeeded since the last run.', p.name), s.last_queued_at,
        format('Nothing, or: select trax.trigger(%L)', m.name)
    from trax.manifest_dependency d
    join trax.manifest p on p.manifest_id = d.parent_id
    where d.child_id = m.manifest_id
        and d.satisfied_at is null
        and not m.dormant
        and s.next_run_at is null
    order by p.name;
    return query
    select 'dormant', 'It runs only when a job of one of its parents activates it.', m.updated_at,
        format('In such a job: select trax.activate(%L)', m.name)
    where m.dormant;
    return query
    select 'ended', 'Its schedule has no further run.', s.parked_since, 'Set another one with trax.schedule().'
    where s.parked_on = 'ended'
        and m.enabled;
    return query
    select 'not_due', format('It is due at %s.', s.next_run_at), s.last_queued_at,
        format('Nothing, or: select trax.trigger(%L)', m.name)
    where s.evaluation_error is null
        and s.next_run_at > clock_timestamp();
    -- The scheduler's state is read only where it matters: trax.status() takes 100 ms when a
    -- million jobs wait.
    if s.evaluation_error is null and s.next_run_at <= clock_timestamp() then
        return query
        select 'due', 'It is due; the next cycle queues it.', s.next_run_at,
            case when t.healthy then 'Nothing: wait.' else t.hint end
        from trax.status() t
        where t.item = 'scheduler';
    end if;
    return query
    select 'no_schedule', 'It runs only when it is triggered.', m.updated_at,
        format('select trax.trigger(%L)', m.name)
    where num_nonnulls(m.cron, m.every, m.run_at, m.depends_mode) = 0;
end;
$$;
comment on function trax.explain_manifest(text) is
    'Returns why a manifest does or does not run now: a row for each reason, with since when it holds and what to do.';
