-- Health.

create function trax.direct_write_obstacles()
returns table (
    relation text,
    reason text
)
language c stable parallel restricted
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_direct_write_obstacles';
comment on function trax.direct_write_obstacles() is
    'Internal. Returns the tables whose rows must be written by statements, each with the reason; none in an installation that nobody has changed.';

create function trax.has_bell()
returns boolean
language c volatile parallel restricted
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_has_bell';
comment on function trax.has_bell() is
    'Internal. Returns false when the shared memory of a server that has trax preloaded has no place left for this database: 1,024 others have theirs.';

create function trax.status()
returns table (
    item text,
    value text,
    healthy boolean,
    hint text
)
language sql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
as $$
with fact as materialized (
    select
        (select e.extversion from pg_extension e where e.extname = 'trax') as version,
        exists (
            select
            from regexp_split_to_table(current_setting('shared_preload_libraries'), ' *, *') l (name)
            where trim(both '"' from l.name) in ('trax', '$libdir/trax')
        ) as preloaded,
        current_setting('trax.enabled', true) as enabled,
        -- This session may have begun before the setting was changed.
        exists (
            select
            from pg_db_role_setting s
            cross join lateral unnest(s.setconfig) c (setting)
            where s.setdatabase = (select d.oid from pg_database d where d.datname = current_database())
                and s.setrole = 0
                and lower(c.setting) in ('trax.enabled=off', 'trax.enabled=false', 'trax.enabled=no', 'trax.enabled=0')
        ) as disabled_here,
        (select count(*) from pg_stat_activity a where a.backend_type = 'trax launcher') as launchers,
        (
            select max(a.pid)
            from pg_stat_activity a
            where a.backend_type = 'trax scheduler'
                and a.datname = current_database()
        ) as scheduler_pid,
        pg_is_in_recovery() as standby,
        (select i.paused_at from trax.instance i order by i.paused_at limit 1) as paused_at,
        -- The launcher starts a scheduler within a second of create extension and of adopt.
        exists (
            select
            from trax.instance i
            where i.adopted_at > clock_timestamp() - interval '5 s'
                and current_setting('trax.enabled', true) = 'on'
                and current_database() = any (
                    coalesce(
                        regexp_split_to_array(nullif(trim(current_setting('trax.databases', true)), ''), ' *, *'),
                        array[current_database()::text]
                    )
                )
                and exists (
                    select
                    from pg_stat_activity a
                    where a.backend_type = 'trax launcher'
                )
        ) as fresh,
        (select i.pause_reason from trax.instance i order by i.paused_at limit 1) as pause_reason,
        (
            select
                count(*) = 1
                and bool_and(
                    i.system_identifier = (select c.system_identifier from pg_control_system() c)
                    and i.database_oid = (select d.oid from pg_database d where d.datname = current_database())
                )
            from trax.instance i
        )
        and exists (
            select
            from trax.adoption a
            where a.system_identifier = (select c.system_identifier from pg_control_system() c)
                and a.database_oid = (select d.oid from pg_database d where d.datname = current_database())
        )
        and not exists (
            select
            from trax.own_triggers() t
            where t.enabled <> 'A'
        ) as adopted,
        (
            select count(*)
            from pg_stat_activity a
            where a.backend_type not in (
                'client backend', 'walsender', 'standalone backend', 'autovacuum launcher', 'autovacuum worker',
                'startup', 'checkpointer', 'background writer', 'walwriter', 'walreceiver', 'archiver', 'logger',
                'io worker', 'slotsync worker', 'walsummarizer'
            )
        ) as workers,
        (select a.home from trax.adoption a) as adopted_home,
        nullif(current_setting('trax.home', true), '') as home
), facts as materialized (
    select
        f.*,
        -- With too few worker slots the launcher starts it within seconds.
        f.scheduler_pid is null
            and f.launchers > 0
            and greatest(
                f.workers,
                2 + (select count(*) from pg_database d where d.datallowconn and not d.datistemplate)
            ) >= current_setting('max_worker_processes')::int
            and exists (
                select
                from trax.tallies() t
                where t.name = 'trax_last_cycle_timestamp_seconds'
                    and to_timestamp(t.value) > clock_timestamp() - interval '30 s'
            )
            and coalesce(
                current_database() = any (
                    regexp_split_to_array(nullif(trim(current_setting('trax.databases', true)), ''), ' *, *')
                ),
                true
            )
            and f.enabled = 'on' as waits_for_turn,
        f.adopted and (f.adopted_home is null or f.adopted_home is not distinct from f.home) as at_home,
        h.holder,
        h.release,
        exists (select from trax.code_of_others() c where not c.is_trusted and c.relation is not null) as runs_code_of_others
    from fact f
    -- An open transaction that has called trax.tick() keeps all other cycles out.
    left join (
        select
            coalesce('process ' || l.pid, format('prepared transaction "%s"', p.gid)) as holder,
            coalesce(
                'select pg_terminate_backend(' || l.pid || ')',
                format('commit prepared %1$s; or: rollback prepared %1$s', quote_literal(p.gid))
            ) as release
        from pg_locks l
        left join pg_stat_activity a on a.pid = l.pid
        left join pg_prepared_xacts p on l.pid is null and l.virtualtransaction = '-1/' || p.transaction
        where l.locktype = 'advisory'
            and l.database = (select d.oid from pg_database d where d.datname = current_database())
            -- The lock of the cycle: see trax_pg/src/server/lock.rs.
            and l.classid = 1
            and l.objid = 0
            and l.objsubid = 29810
            and l.granted
            and coalesce(a.backend_type, '') <> 'trax scheduler'
            and coalesce(a.xact_start, p.prepared) < clock_timestamp() - interval '5 s'
        order by l.pid
        limit 1
    ) h on true
), clock_jump as materialized (
    select j.jumped_at, j.believed_at, j.jumped_at - (clock_timestamp() - j.believed_at) as believed_then, j.held_until
    from trax.clock_jump() j
), stopped as materialized (
    select t.manifest, t.dead_letter_id, row_number() over (order by t.stopped_at, t.dead_letter_id) as place
    from trax.stopped_schedule t
)
select
    'stopped schedules',
    concat_ws(
        ': ', count(*),
        string_agg(format('"%s" by dead letter %s', t.manifest, t.dead_letter_id), ', ' order by t.place)
            filter (where t.place <= 5)
    ) || case when count(*) > 5 then ', and others' else '' end,
    count(*) = 0,
    case
        when count(*) > 0 then format(
            'Nothing is queued for them until a person resolves what failed. Type: select trax.requeue_dead_letter(%1$s); or, without another run: select trax.acknowledge_dead_letter(%1$s). See all: select * from trax.stopped_schedule. With trax.schedule(..., on_dead_letter => ''continue'') a schedule goes on by itself; for those to come: alter database %2$I set trax.on_dead_letter = continue',
            min(t.dead_letter_id) filter (where t.place = 1), current_database()
        )
    end
from stopped t
union all
select 'version', f.version, true, null
from facts f
union all
select
    'library',
    case when f.preloaded then 'preloaded' else 'not preloaded' end,
    f.preloaded,
    case
        when not f.preloaded then format(
            'The scheduler does not start by itself. Type: alter system set shared_preload_libraries = %s; then restart PostgreSQL. Until then: select trax.start_scheduler(); or call trax.tick() regularly.',
            quote_literal(
                concat_ws(', ', nullif(current_setting('shared_preload_libraries'), ''), 'trax')
            )
        )
    end
from facts f
union all
select
    'shared memory',
    'no place for this database',
    false,
    'The server has more than 1,024 databases that use trax. Here workers and schedulers poll, and claims read the queue from its beginning. Move some of the databases to another server, or drop those that are not needed.'
from facts f
where f.preloaded
    and not trax.has_bell()
union all
select
    'scheduler',
    case
        when f.standby then 'standby'
        when not f.at_home then 'waiting for trax.adopt()'
        when f.disabled_here then 'disabled in this database'
        when f.paused_at is not null then format(
            'paused since %s%s', date_trunc('second', f.paused_at), coalesce(': ' || f.pause_reason, '')
        )
        when f.holder is not null then format('held up by %s', f.holder)
        when f.scheduler_pid is null and f.fresh then 'starting'
        when f.waits_for_turn then 'waiting for its turn'
        when f.scheduler_pid is null then 'not running'
        when f.runs_code_of_others then 'refuses to run code of others'
        else 'running'
    end,
    f.standby
        or (f.scheduler_pid is not null and f.at_home and f.paused_at is null and f.holder is null and not f.runs_code_of_others and not f.disabled_here)
        or (f.at_home and f.paused_at is null and f.holder is null and not f.disabled_here and (f.scheduler_pid is null and f.fresh or f.waits_for_turn)),
    case
        when f.standby then null
        when f.adopted and not f.at_home then format(
            'These tables were adopted under the home "%s"; trax.home of this server is "%s". If the jobs should run here and nowhere else, type: select trax.adopt()',
            f.adopted_home, f.home
        )
        when not f.at_home then
            'These tables are a copy: restored, or made from another database. If the jobs should run here and nowhere else, type: select trax.adopt()'
        when f.disabled_here then format(
            'trax.enabled is off for it. Type: alter database %I reset trax.enabled', current_database()
        )
        when f.paused_at is not null then 'To resume it, type: select trax.resume()'
        when f.holder is not null then format(
            'That session has called trax.tick() in a transaction that is still open: no other cycle runs until it ends. End it, or type: %s',
            f.release
        )
        when f.scheduler_pid is not null and f.runs_code_of_others then
            'A function of another role would run with the rights of the owner of trax. Drop the object that calls it, or give the function to a superuser; see: select detail, fix from trax.diagnose() where cause = ''code_of_others'''
        when f.scheduler_pid is not null then null
        when f.fresh then null
        when f.waits_for_turn then format(
            'This server has more databases than worker slots: their schedulers take turns. Type: alter system set max_worker_processes = %s; then restart PostgreSQL.',
            current_setting('max_worker_processes')::int + 8
        )
        when f.enabled = 'off' then 'trax.enabled is off. Type: alter system set trax.enabled = on; select pg_reload_conf()'
        when not f.preloaded then 'Type: select trax.start_scheduler()'
        when f.launchers = 0 then 'The launcher is not running; see the server log, and max_worker_processes.'
        else format(
            'Check that trax.databases (%s) names this database and that max_worker_processes (%s) has room.',
            coalesce(nullif(current_setting('trax.databases', true), ''), 'all'),
            current_setting('max_worker_processes')
        )
    end
from facts f
union all
select
    'clock',
    case
        when j.jumped_at is null then 'believed'
        else format(
            'jumped %s by %s', case when j.jumped_at > j.believed_then then 'forward' else 'back' end,
            justify_interval(date_trunc('second', greatest(j.jumped_at - j.believed_then, j.believed_then - j.jumped_at) + interval '0.5 s'))
        )
    end,
    j.jumped_at is null,
    case
        when j.jumped_at is not null then format(
            'Since %s nothing is dropped, deleted or timed out by it. If it does not jump again until %s, it is believed. Correct the clock of this machine; or, if it is right, because the machine was off or paused, type: select trax.believe_clock()',
            date_trunc('second', j.jumped_at), date_trunc('second', j.held_until)
        )
    end
from (select) one
left join clock_jump j on true
union all
select
    'rows of the hot tables',
    coalesce('written by statements: ' || string_agg(format('%s (%s)', d.relation, d.reason), ', '), 'written directly'),
    true,
    case
        when count(*) > 0 then
            'These additions to the tables are respected; every job costs more while they exist.'
    end
from trax.direct_write_obstacles() d
union all
select 'waiting, ready', count(*)::text, true, null
from (select from trax.work_queue q where q.waits_for is null limit 1000000) q
union all
select 'waiting, delayed', count(*)::text, true, null
from (select from trax.work_queue q where q.waits_for = 'time' limit 1000000) q
union all
select 'waiting, behind a key', count(*)::text, true, null
from (select from trax.work_queue q where q.waits_for = 'key' limit 1000000) q
union all
select 'waiting, behind a manifest', count(*)::text, true, null
from (select from trax.work_queue q where q.waits_for = 'manifest' limit 1000000) q
union all
select 'waiting, suspended', count(*)::text, true, null
from (select from trax.work_queue q where q.waits_for in ('signal', 'jobs') limit 1000000) q
union all
select 'in progress', count(*)::text, true, null
from trax.lease
union all
select
    'sql jobs',
    concat_ws(', ', 'ready: ' || w.ready, case when w.wait_for_busy then 'executing: ' || e.executing end),
    not w.wait_for_nobody and not w.wait_for_busy and w.disobedient is null,
    case
        when w.disobedient is not null then format(
            'These executors were asked to end but continue: %s. A function that does not check for interrupts ends only by itself or with the server.',
            w.disobedient
        )
        when w.wait_for_busy then format(
            'The oldest has waited since %s, while %s statements run, the longest since %s. See them: select job_id, run_as, started_at from trax.lease where run_as is not null; end one: select trax.cancel(%s); or run more at once: alter database %I set trax.max_sql_workers = %s',
            date_trunc('second', w.since), e.executing, date_trunc('second', e.since), e.job_id, current_database(),
            2 * greatest(current_setting('trax.max_sql_workers', true)::int, 1)
        )
        when not w.wait_for_nobody then null
        when not (select f.preloaded from facts f) then format(
            'Only a server that has trax preloaded runs them. Type: alter system set shared_preload_libraries = %s; then restart PostgreSQL.',
            quote_literal(
                concat_ws(', ', nullif(current_setting('shared_preload_libraries'), ''), 'trax')
            )
        )
        when current_setting('trax.max_sql_workers', true) = '0' then
            'trax.max_sql_workers is 0. Type: alter system set trax.max_sql_workers = 2; select pg_reload_conf()'
        when (select f.workers from facts f) >= current_setting('max_worker_processes')::int then format(
            'They wait for a background worker: all %1$s of the server are in use. Type: alter system set max_worker_processes = %2$s; then restart PostgreSQL.',
            current_setting('max_worker_processes'), current_setting('max_worker_processes')::int + 8
        )
        else format(
            'No background worker runs them: see the scheduler above; max_worker_processes (%s) may be too low; the server log shows this.',
            current_setting('max_worker_processes')
        )
    end
from (
    select
        count(*) as ready,
        min(q.ready_at) as since,
        coalesce(min(q.ready_at) < clock_timestamp() - interval '1 min', false)
            and (select count(*) from trax.lease l where l.run_as is not null)
                >= current_setting('trax.max_sql_workers', true)::int
            and current_setting('trax.max_sql_workers', true)::int > 0 as wait_for_busy,
        coalesce(min(q.ready_at) < clock_timestamp() - interval '10 s', false)
            and (
                select
                    count(*) = 0
                    or (
                        count(*) < current_setting('trax.max_sql_workers', true)::int
                        and (select f.workers from facts f) >= current_setting('max_worker_processes')::int
                    )
                from pg_stat_activity a
                where a.backend_type = 'trax executor'
                    and a.datname = current_database()
            ) as wait_for_nobody,
        (
            select string_agg(a.pid::text, ', ' order by a.pid)
            from pg_stat_activity a
            where a.backend_type = 'trax executor'
                and a.datname = current_database()
                and a.state = 'active'
                and a.query_start < clock_timestamp() - current_setting('trax.cancel_grace', true)::interval - interval '2 s'
                and not exists (
                    select
                    from trax.lease l
                    where l.run_as is not null
                        and l.worker = 'trax executor:' || a.pid
                        and not l.cancel_requested
                )
        ) as disobedient
    from (
        -- Jobs whose group is at its limit do not wait for a worker.
        select
            case
                when g.max_active_jobs is null
                    or g.max_active_jobs > (select count(*) from trax.lease l where l.group_name = g.name)
                    then greatest(q.run_at, q.queued_at)
            end as ready_at
        from trax.work_queue q
        left join trax.manifest_group g on g.name = q.group_name
        where q.run_as is not null
            and q.waits_for is null
            and g.enabled is not false
        limit 10000
    ) q
) w
cross join (
    select count(*) as executing, min(l.started_at) as since, (array_agg(l.job_id order by l.started_at, l.job_id))[1] as job_id
    from trax.lease l
    where l.run_as is not null
) e
union all
select
    'overdue leases',
    count(*)::text,
    count(*) = 0,
    case when count(*) > 0 then 'No cycle has processed them: see the scheduler above.' end
from (select least(clock_timestamp(), (select j.believed_at from clock_jump j)) - interval '10 s' as past) c
join trax.lease l on l.lease_expires_at < c.past
where not exists (
    select
    from trax.lease_extension e
    where e.job_id = l.job_id
        and e.token = l.token
        and e.lease_expires_at >= c.past
)
union all
select 'manifests', count(*)::text, true, null
from trax.manifest
union all
select
    'overdue manifests',
    count(*)::text,
    count(*) = 0,
    case when count(*) > 0 then 'No cycle has queued them: see the scheduler above.' end
from trax.manifest_state s
where s.next_run_at < clock_timestamp() - interval '10 s'
union all
select
    'manifests that cannot be evaluated',
    count(*)::text,
    count(*) = 0,
    case
        when count(*) > 0 then
            'See: select m.name, s.evaluation_error from trax.manifest_state s join trax.manifest m using (manifest_id) where s.evaluation_error is not null'
    end
from trax.manifest_state s
where s.evaluation_error is not null
union all
select
    'dead letters',
    count(*)::text,
    count(*) = 0,
    case
        when count(*) > 0 then
            'See: select id, task, last_error from trax.dead_letter where status = ''awaiting_intervention''; then trax.requeue_dead_letter(id) or trax.acknowledge_dead_letter(id)'
    end
from trax.dead_letter d
where d.status = 'awaiting_intervention'
union all
select
    'jobs that cannot be read',
    concat_ws(
        ': ', count(*), string_agg(format('job %s, since %s: %s', u.job_id, date_trunc('second', u.found_at), u.error), '; ' order by u.job_id)
            filter (where u.place <= 5)
    ),
    count(*) = 0,
    case
        when count(*) > 0 then format(
            'Their input is damaged on disk: see select * from trax.unreadable_job. The others go on. Try: reindex table trax.work_queue; reindex table trax.lease; or restore the table. A job that can be read again goes on by itself, within ten minutes, or at once with: select trax.run_now(%1$s). To give one up, type: select trax.cancel(%1$s)',
            min(u.job_id)
        )
    end
from (
    select u.*, row_number() over (order by u.job_id) as place
    from trax.unreadable_job u
    where exists (select from trax.work_queue q where q.job_id = u.job_id)
        or exists (select from trax.lease l where l.job_id = u.job_id)
) u
union all
select
    'cleanup steps that fail',
    coalesce(
        string_agg(
            format('%s, since %s: %s', f.step, date_trunc('second', f.failed_since), f.error), '; ' order by f.step
        ),
        '0'
    ),
    count(*) = 0,
    case
        when count(*) > 0 then
            'Fix what the error names; the step is tried again by itself: select * from trax.failed_step'
    end
from trax.failed_step f
$$;
comment on function trax.status() is
    'Returns the state of trax in this database: for each item whether it is healthy and, if not, what to type. Counts of waiting jobs end at 1,000,000.';
