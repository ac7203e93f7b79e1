-- Why a job waits, in words.

create function trax.limit_locks(
    group_name text,
    concurrency_key text,
    manifest_id bigint
)
returns table (
    name text,
    classid oid,
    objid oid,
    objsubid smallint
)
language c stable parallel restricted
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_limit_locks';
comment on function trax.limit_locks(text, text, bigint) is
    'Internal. Returns the locks on the limits of a job as pg_locks shows them: while another transaction holds such a lock, no claim takes the job.';

create function trax.reasons_of_job(
    job_id bigint
)
returns table (
    reason text,
    detail text,
    since timestamptz,
    action text
)
language sql stable parallel restricted
set search_path = pg_catalog, pg_temp
as $$
with waiting as materialized (
    select
        q.*,
        case when q.waits_for = 'time' then q.queued_at else greatest(q.queued_at, least(q.run_at, clock_timestamp())) end as ready_at,
        coalesce(g.enabled, true) as group_enabled,
        g.updated_at as group_updated_at,
        g.max_active_jobs,
        l.executed,
        coalesce(l.executed >= g.max_active_jobs, false) as group_full,
        coalesce(g.max_per_key, 1) as max_per_key,
        -- A job is marked as waiting for its key or manifest by the first claim that looks at it.
        case
            when q.waits_for <> 'time' then q.waits_for
            when l.executed >= g.max_active_jobs then null
            when k.executed >= coalesce(g.max_per_key, 1) then 'key'
            when n.executed >= m.max_concurrency then 'manifest'
        end as blocked_by
    from trax.work_queue q
    left join trax.manifest_group g on g.name = q.group_name
    left join trax.manifest m on m.manifest_id = q.manifest_id
    left join lateral (
        select count(*) as executed
        from trax.lease l
        where l.concurrency_key = q.concurrency_key
    ) k on q.concurrency_key is not null
    left join lateral (
        select count(*) as executed
        from trax.lease l
        where l.manifest_id = q.manifest_id
    ) n on q.manifest_id is not null
    left join lateral (
        select count(*) as executed
        from trax.lease l
        where l.group_name = g.name
            and l.limited
    ) l on g.max_active_jobs is not null
    where q.job_id = $1
), holder as materialized (
    -- The jobs that must end first.
    (
        select l.job_id
        from waiting w
        join trax.lease l on l.concurrency_key = w.concurrency_key
        where w.blocked_by = 'key'
        order by l.job_id
        limit 20
    )
    union all
    (
        select l.job_id
        from waiting w
        join trax.lease l on l.manifest_id = w.manifest_id
        where w.blocked_by = 'manifest'
        order by l.job_id
        limit 20
    )
), held as materialized (
    select coalesce('; now executed: job ' || string_agg(h.job_id::text, ', ' order by h.job_id), '') as by_jobs
    from holder h
)
select
    'unreadable', format('Job %s cannot be read: %s', u.job_id, u.error), u.found_at,
    format('Repair the table that the error names; then: select trax.run_now(%1$s). To give the job up: select trax.cancel(%1$s)', u.job_id)
from waiting w
join trax.unreadable_job u on u.job_id = w.job_id
union all
select
    'group_disabled', format('The group "%s" of job %s is disabled.', w.group_name, w.job_id), w.group_updated_at,
    format('select trax.configure_group(%L, enabled => true)', w.group_name)
from waiting w
where not w.group_enabled
union all
select
    'group_limit',
    format(
        'The group "%s" of job %s executes %s jobs, and may execute %s at once.', w.group_name, w.job_id, w.executed, w.max_active_jobs
    ),
    w.ready_at,
    format('Nothing: wait; or: select trax.configure_group(%L, max_active_jobs => %s)', w.group_name, 2 * w.max_active_jobs::bigint)
from waiting w
where coalesce(w.waits_for, 'time') = 'time'
    and w.group_full
union all
select
    'locked',
    format(
        'Job %s waits for %s, which has locked %s since %s: no other claim takes its jobs.', w.job_id,
        coalesce('process ' || l.pid, format('prepared transaction "%s"', p.gid)), k.name,
        date_trunc('second', coalesce(a.xact_start, p.prepared))
    ),
    coalesce(a.xact_start, p.prepared),
    'End that transaction, or type: '
        || coalesce(
            'select pg_terminate_backend(' || l.pid || ')',
            format('commit prepared %1$s; or: rollback prepared %1$s', quote_literal(p.gid))
        )
from waiting w
cross join lateral trax.limit_locks(w.group_name, w.concurrency_key, w.manifest_id) k
join pg_locks l on l.classid = k.classid
    and l.objid = k.objid
    and l.objsubid = k.objsubid
left join pg_stat_activity a on a.pid = l.pid
left join pg_prepared_xacts p on l.pid is null and l.virtualtransaction = '-1/' || p.transaction
where w.waits_for is null
    and l.locktype = 'advisory'
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.mode = 'ExclusiveLock'
    and l.granted
    and l.pid is distinct from pg_backend_pid()
    and coalesce(a.xact_start, p.prepared) < clock_timestamp() - interval '1 s'
union all
select
    'delayed',
    case
        when w.attempts > 0 then format('Job %s waits for attempt %s, due at %s.', w.job_id, w.attempts + 1, w.run_at)
        else format('Job %s is due at %s.', w.job_id, w.run_at)
    end,
    coalesce((
        select max(r.finished_at)
        from trax.run r
        where r.job_id = w.job_id
    ), w.queued_at),
    case when w.run_at > clock_timestamp() then 'Nothing: wait.' else 'Nothing: the next cycle makes it ready.' end
        || format(' To run it now: select trax.run_now(%s)', w.job_id)
from waiting w
where w.waits_for = 'time'
union all
select
    'key',
    format(
        'Job %s waits until a job with its concurrency key "%s" ends: %s may run at once%s.',
        w.job_id, w.concurrency_key, w.max_per_key, h.by_jobs
    ),
    w.ready_at, 'Nothing: wait.'
from waiting w
cross join held h
where w.blocked_by = 'key'
union all
select
    'manifest',
    format(
        'Job %s waits until another job of this manifest ends: %s may run at once%s.', w.job_id, m.max_concurrency, h.by_jobs
    ),
    w.ready_at, 'Nothing: wait.'
from waiting w
join trax.manifest m on m.manifest_id = w.manifest_id
cross join held h
where w.blocked_by = 'manifest'
union all
select
    'signal',
    format('Job %s waits for a signal', w.job_id) || coalesce(format(' "%s"', s.wait ->> 'name'), '')
        || coalesce(', until ' || w.wait_until || '.', '.')
        || coalesce(' Signals of other names were sent to it: ' || (
            select string_agg(distinct format('"%s"', g.name), ', ')
            from trax.signal g
            where g.job_id = w.job_id
                and g.sent_at is not null
                and g.taken_at is null
        ) || '.', ''),
    (s.wait ->> 'since')::timestamptz,
    format('Nothing: wait. To send it: select trax.send_signal(%s, %L)', w.job_id, coalesce(s.wait ->> 'name', '...'))
from waiting w
left join trax.step s on s.job_id = w.job_id and s.kind = 'signal' and s.recorded_at is null
where w.waits_for = 'signal'
union all
select
    'open_batch', format('Job %s runs after all jobs of its batch, to which more may be added.', w.job_id), w.queued_at,
    format('When all are added: select trax.seal_batch(%s)', w.job_id)
from waiting w
join trax.need n on n.job_id = w.job_id and n.needed_job_id = w.job_id
join trax.graph g on g.graph_id = w.job_id and g.is_batch
union all
select
    'dead_letter_of_need',
    format('Job %s waits until a person decides on the dead letter of job %s, which it needs.', w.job_id, d.job_id), d.created_at,
    format('select trax.requeue_dead_letter(%s); or, to cancel what needs it: select trax.acknowledge_dead_letter(%1$s)', d.id)
from waiting w
join trax.need n on n.job_id = w.job_id and n.awaits_requeue
join trax.dead_letter d on d.job_id = n.needed_job_id and d.status = 'awaiting_intervention'
union all
select
    'jobs',
    format('Job %s waits for the end of ', w.job_id)
        || case count(n.needed_job_id) when 0 then '0 jobs' when 1 then 'job ' when 21 then 'more than 20 jobs: ' else count(n.needed_job_id) || ' jobs: ' end
        || coalesce(string_agg(n.needed_job_id::text, ', ' order by n.needed_job_id) filter (where n.place <= 20), '')
        || coalesce(', until ' || w.wait_until || '.', '.'),
    w.ready_at, 'Nothing: wait. See why each waits: select * from trax.explain_job(...)'
from waiting w
left join lateral (
    select o.needed_job_id, row_number() over (order by o.needed_job_id) as place
    from trax.need o
    where o.job_id = w.job_id
        and o.needed_job_id <> w.job_id
    limit 21
) n on true
where w.waits_for = 'jobs'
group by w.job_id, w.wait_until, w.ready_at
union all
select r.*
from waiting w
cross join lateral trax.reasons_of_rate(w.job_id) r
where w.blocked_by is null
    and w.group_enabled
    and not w.group_full
union all
select
    'executor',
    format(
        'Job %s waits for an executor: %s statements run, at most %s at once in this database.',
        w.job_id, (select count(*) from trax.lease l where l.run_as is not null),
        coalesce(current_setting('trax.max_sql_workers', true), '2')
    ),
    w.ready_at,
    'See what runs: select job_id, run_as, worker, started_at from trax.lease where run_as is not null; then trax.cancel(job_id), or: '
        || format('alter database %I set trax.max_sql_workers = ', current_database())
        || 2 * greatest(current_setting('trax.max_sql_workers', true)::int, 1)
from waiting w
where w.blocked_by is null
    and w.group_enabled
    and not w.group_full
    and w.waits_for is null
    and w.run_as is not null
union all
select
    case
        when t.workers = 0 and w.version is not null then 'version'
        when t.workers = 0 and t.claimed_at is null then 'no_worker'
        else 'worker'
    end,
    format('Job %s waits for a worker of task "%s"', w.job_id, w.task) || coalesce(' that takes version "' || w.version || '".', '.')
        || case
            when t.workers > 0 then format(
                ' %s take it and execute %s jobs; %s jobs of its task and group stand before it.',
                t.workers, t.executed, case when b.count > 1000 then 'more than 1000' else b.count::text end
            )
            when t.others > 0 then format(' %s workers take the task, but not this version.', t.others)
            when t.claimed_at is null then ' No worker that takes it is known.'
            else format(
                ' The last claim of its task was at %s; %s jobs of its task and group stand before it.',
                date_trunc('second', t.claimed_at), case when b.count > 1000 then 'more than 1000' else b.count::text end
            )
        end,
    w.ready_at,
    case when t.workers > 0 then 'Nothing: wait; or run more workers that take' else 'Run a worker that takes' end
        || coalesce(' version "' || w.version || '" of', '') || format(' task "%s".', w.task)
from waiting w
cross join lateral (
    select
        count(*) filter (where v.takes) as workers,
        count(*) filter (where not v.takes) as others,
        coalesce(sum(s.running) filter (where v.takes), 0) as executed,
        (
            select to_timestamp(max(y.value))
            from trax.tallies() y
            where y.name = 'trax_last_claim_timestamp_seconds'
                and y.labels ->> 'task' = w.task
        ) as claimed_at
    from trax.worker_state s
    cross join lateral (select trax.worker_takes(s.info, w.task, w.group_name, w.version) as takes) v
    where s.state in ('working', 'idle')
        and s.info ? 'tasks'
        and trax.worker_takes(s.info, w.task, w.group_name)
) t
cross join lateral (
    select count(*) as count
    from (
        select
        from trax.work_queue q
        where q.lane_id = w.lane_id
            and q.waits_for is null
            and (q.priority > w.priority or (q.priority = w.priority and q.job_id < w.job_id))
        limit 1001
    ) q
) b
where w.blocked_by is null
    and w.group_enabled
    and not w.group_full
    and (w.waits_for is null or (w.version is not null and t.workers = 0))
    and w.run_as is null
union all
select
    'executing', format('Worker "%s" executes job %s, attempt %s.', l.worker, l.job_id, l.attempt), l.started_at,
    case when l.cancel_requested then 'Nothing: its worker is asked to stop.' else 'Nothing: wait.' end
from trax.lease l
where l.job_id = $1
union all
select
    'dead_letter',
    format(
        'Job %s failed for good (%s)%s. A person decides on its dead letter %s.',
        d.job_id, d.reason, ': ' || left(d.last_error, 200), d.id
    ),
    d.created_at, format('select trax.requeue_dead_letter(%s)', d.id)
from trax.dead_letter d
where d.job_id = $1
    and d.status = 'awaiting_intervention'
$$;
comment on function trax.reasons_of_job(bigint) is
    'Internal. Returns the reasons of trax.explain_job() that concern the job, its key, its group and its workers; none if it has ended.';

create function trax.explain_job(
    job_id bigint
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
    -- Not "id", which is a column of trax.dead_letter.
    wanted constant bigint := explain_job.job_id;
    needs_scheduler boolean;
begin
    if wanted is null then
        raise exception 'argument "job_id" must not be null'
            using errcode = '22004',
                detail = 'The argument "job_id" is null.',
                hint = 'Specify the id that trax.enqueue returned: job_id => 1';
    end if;
    select
        q.run_at <= clock_timestamp() and (q.run_as is not null or coalesce(q.waits_for, '') = 'time')
    into needs_scheduler
    from trax.work_queue q
    where q.job_id = wanted;
    if found then
        -- The first of these keeps a job from being claimed, whatever the others are.
        if pg_is_in_recovery() then
            return query
            select
                'standby', format('Job %s waits on a standby: workers claim from its primary.', wanted), null::timestamptz,
                'Look at the primary.';
        elsif exists (select from trax.code_of_others() c where not c.is_trusted and c.relation is not null) then
            return query
            select
                'code_of_others',
                format('Job %s cannot be claimed: code of another role would run with the rights of the owner of trax.', wanted),
                null::timestamptz, 'See: select detail, fix from trax.diagnose() where cause = ''code_of_others''';
        elsif trax.is_copy() then
            return query
            select
                'not_adopted', format('Job %s is in a copy of another database, where nothing is claimed.', wanted),
                null::timestamptz, 'If the jobs should run here and nowhere else, type: select trax.adopt()';
        elsif needs_scheduler then
            -- Read only where it matters, as below for a manifest.
            return query
            select
                'scheduler', format('Job %s waits for the scheduler, which is: %s', wanted, s.value),
                (select i.paused_at from trax.instance i where s.value like 'paused %' limit 1), s.hint
            from trax.status() s
            where s.item = 'scheduler'
                and not s.healthy;
        end if;
        return query
        select
            'database_limit',
            format('This database executes %s jobs, and may execute %s at once.', n.count, l.max_active_jobs),
            null::timestamptz,
            format('Nothing: wait; or: alter database %I set trax.max_active_jobs = %s', current_database(), 2 * l.max_active_jobs)
        from (select nullif(current_setting('trax.max_active_jobs', true), '')::bigint as max_active_jobs) l
        cross join (select count(*) as count from trax.lease) n
        where l.max_active_jobs > 0
            and n.count >= l.max_active_jobs;
    end if;
    return query
    select r.reason, r.detail, r.since, r.action
    from trax.reasons_of_job(wanted) r;
    if found then
        return;
    end if;
    return query
    select
        'departed', format('Job %s of group "%s" is on its way to shard %s.', wanted, d.group_name, d.target), d.departed_at,
        format('In the router: call trax_router.move_group(%L, %s, null)', d.group_name, d.target)
    from trax.departures() d
    where d.cargo -> 'jobs' @> jsonb_build_array(jsonb_build_object('job_id', wanted));
    if found then
        return;
    end if;
    return query
    select
        'ended',
        format('Job %s %s at %s.', wanted, case r.state when 'cancelled' then 'was cancelled' else r.state end, date_trunc('second', r.finished_at)),
        r.finished_at,
        coalesce(
            (
                select format('Look at the job that it was queued again as: select * from trax.explain_job(%s)', d.requeued_job_id)
                from trax.dead_letter d
                where d.job_id = wanted
                    and d.requeued_job_id is not null
                order by d.id desc
                limit 1
            ),
            'Nothing: it has ended.'
        )
    from trax.run r
    where r.job_id = wanted
        and r.final
    order by r.finished_at desc
    limit 1;
    if not found then
        raise exception 'job % does not exist', wanted
            using errcode = '42704',
                detail = format('No job with the id %s waits, is executed, or is in the history, which is kept for %s.', wanted, current_setting('trax.run_retention', true)),
                hint = 'Find it by its properties with: select job_id, task, group_name, queued_at from trax.work_queue order by job_id';
    end if;
end;
$$;
comment on function trax.explain_job(bigint) is
    'Returns a row for each reason why a job waits, and what to do. A job that does not wait has one row: executing, departed (to another shard), dead_letter or ended.';
