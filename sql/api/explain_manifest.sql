-- Why a manifest does or does not run now, in words.

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
    select
        r.reason,
        r.detail || ' Its schedule stands still until then. With on_dead_letter = continue, which trax.on_dead_letter sets for all, a schedule goes on after failures, as with cron.',
        r.since, r.action
    from trax.dead_letter d
    cross join lateral trax.reasons_of_job(d.job_id) r
    where d.manifest_id = m.manifest_id
        and d.status = 'awaiting_intervention'
        and m.on_dead_letter = 'stop';
    return query
    select 'queued', r.detail, r.since, r.action
    from (
        select q.job_id
        from trax.work_queue q
        where q.manifest_id = m.manifest_id
        order by q.job_id
        limit 100
    ) q
    cross join lateral trax.reasons_of_job(q.job_id) r
    order by q.job_id;
    return query
    select r.reason, r.detail, r.since, r.action
    from trax.lease l
    cross join lateral trax.reasons_of_job(l.job_id) r
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
    'Returns a row for each reason why a manifest does or does not run now, and what to do.';
