-- Causes with fixes.
--
-- Each unhealthy finding of trax.status() is a cause; the rest are causes that slow a healthy
-- scheduler down, or will stop it.

create function trax.diagnose(
    patience interval default '5 min',
    role name default current_user
)
returns table (
    cause text,
    severity text,
    detail text,
    fix text
)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
with clock as materialized (
    select clock_timestamp() as now, clock_timestamp() - greatest(least($1, '1000 years'), '0') as past
), tally as materialized (
    select * from trax.tallies()
), hot as materialized (
    select c.oid, c.relname, greatest(c.reltuples, 0) as tuples, c.reloptions
    from pg_class c
    where c.relnamespace = 'trax'::regnamespace
        and c.relname in ('work_queue', 'lease', 'manifest_state')
), lane as materialized (
    -- Lanes with a ready job, and the first of them by the order of claiming.
    select l.lane_id, l.group_name, l.task, l.run_at, l.version, l.rate, l.rate_key
    from trax.lane l
), group_load as materialized (
    select
        w.group_name,
        w.waiting,
        coalesce(g.enabled, true) as enabled,
        g.max_active_jobs,
        g.rate,
        (select count(*) from trax.lease l where l.group_name = w.group_name and g.max_active_jobs is not null) as executed
    from (select l.group_name, min(l.run_at) as waiting from lane l group by 1) w
    left join trax.manifest_group g on g.name = w.group_name
), waiting_lane as materialized (
    -- Lanes that no claim has taken a job from for a long time, though their groups have room.
    select l.*
    from clock c
    join lane l on l.run_at <= c.past
    join group_load g on g.group_name = l.group_name
    where g.enabled
        -- No worker takes a statement: trax.status() reports why statements wait.
        and l.task <> 'sql'
        and (g.max_active_jobs is null or g.executed < g.max_active_jobs)
        and not exists (
            select
            from trax.lease e
            where e.lane_id = l.lane_id
                and e.started_at > c.past
        )
        and not trax.is_held_by_rate(l.rate, l.rate_key)
        and not trax.is_held_by_rate(g.rate, null)
), of_version as materialized (
    -- Those of a version that no worker which reports what it takes does take.
    select l.*
    from waiting_lane l
    where l.version is not null
        and not exists (
            select
            from trax.worker_state w
            where w.state in ('working', 'idle')
                and w.info ? 'tasks'
                and trax.worker_takes(w.info, l.task, l.group_name, l.version)
        )
), unclaimed as materialized (
    select
        'version_not_taken' as cause,
        format('%s jobs of version "%s" of task "%s" have waited since %s, and no known worker takes this version.',
            case when sum(n.jobs) > 10000 then 'More than 10000' else sum(n.jobs)::text end, o.version, o.task,
            date_trunc('second', min(o.run_at))) as detail,
        o.task, o.version, row_number() over (order by min(o.run_at)) as place
    from of_version o
    cross join lateral (
        select count(*) as jobs
        from (select from trax.work_queue q where q.lane_id = o.lane_id and q.waits_for is null limit 10001) q
    ) n
    group by o.version, o.task
    union all
    select
        'task_not_claimed',
        format('Jobs of task "%s" in group "%s" have waited since %s, and no worker takes them.',
            l.task, l.group_name, date_trunc('second', l.run_at)),
        l.task, l.version, row_number() over (order by l.run_at)
    from clock c
    cross join waiting_lane l
    where l.lane_id not in (select o.lane_id from of_version o)
        and not exists (
            select
            from tally t
            where t.name = 'trax_last_claim_timestamp_seconds'
                and t.labels ->> 'task' = l.task
                and to_timestamp(t.value) > c.past
        )
), worker_process as materialized (
    -- Background workers are all processes whose type is not one of the server's own.
    select
        count(*) as used,
        count(*) filter (where a.backend_type = 'trax scheduler' and a.datname = current_database()) as schedulers,
        min(a.backend_start) filter (where a.backend_type = 'trax scheduler' and a.datname = current_database()) as started_at
    from pg_stat_activity a
    where a.backend_type not in (
        'client backend', 'autovacuum launcher', 'autovacuum worker', 'walsender', 'checkpointer',
        'background writer', 'walwriter', 'startup', 'archiver', 'logger', 'walreceiver', 'io worker',
        'walsummarizer', 'slotsync worker', 'standalone backend'
    )
), blocker as materialized (
    -- The holder of the oldest deleted rows; as patient as the causes that name it.
    select o.holder
    from (
        select format('process %s', a.pid) as holder, greatest(age(a.backend_xmin), age(a.backend_xid)) as age
        from clock c
        join pg_stat_activity a on a.xact_start <= c.past
        where a.datname = current_database()
            and (a.backend_xmin is not null or a.backend_xid is not null)
            and a.backend_type not in ('autovacuum worker', 'trax scheduler', 'trax vacuum')
            and a.pid <> pg_backend_pid()
        union all
        select format('prepared transaction "%s"', p.gid), age(p.transaction)
        from clock c
        join pg_prepared_xacts p on p.prepared <= c.past
        where p.database = current_database()
        union all
        select format('replication slot "%s"', s.slot_name), age(s.xmin)
        from pg_replication_slots s
        where s.xmin is not null
            and (not s.active or age(s.xmin) > 1000000)
    ) o
    order by o.age desc nulls last
    limit 1
), unhealthy as materialized (
    select s.item, s.value, s.hint
    from trax.status() s
    where not s.healthy
), stopped as materialized (
    select t.*, row_number() over (order by t.stopped_at, t.dead_letter_id) as place, count(*) over () as schedules
    from trax.stopped_schedule t
)
select
    'schedule_stopped', 'critical',
    format('Schedule "%s" is stopped: job %s failed for good at %s (%s%s), and its dead letter %s waits for a person.%s',
        t.manifest, t.job_id, date_trunc('second', t.stopped_at), t.reason, ': ' || left(t.last_error, 200), t.dead_letter_id,
        case when t.place = 10 and t.schedules > 10 then format(' Another %s schedules are stopped: select * from trax.stopped_schedule', t.schedules - 10) end),
    format('select trax.requeue_dead_letter(%1$s); or, without another run: select trax.acknowledge_dead_letter(%1$s)', t.dead_letter_id)
from stopped t
where t.place <= 10
union all
select
    case
        when u.item = 'library' then 'library_not_preloaded'
        when u.item = 'scheduler' and u.value like 'paused%' then 'scheduler_paused'
        when u.item = 'scheduler' and u.value = 'waiting for trax.adopt()' then 'copy_not_adopted'
        when u.item = 'scheduler' and u.value like 'held up by %' then 'cycle_held'
        when u.item = 'scheduler' and u.value like 'refuses to %' then 'scheduler_refuses'
        when u.item = 'scheduler' then 'scheduler_not_running'
        when u.item = 'clock' then 'clock_jumped'
        else replace(u.item, ' ', '_')
    end,
    case
        when u.item in ('library', 'clock', 'dead letters', 'manifests that cannot be evaluated') then 'warning'
        when u.item = 'sql jobs' and u.value like '%, executing: %' then 'warning'
        else 'critical'
    end,
    format('%s: %s', u.item, u.value),
    u.hint
from unhealthy u
where u.item <> 'stopped schedules'
union all
select
    'too_few_worker_processes', 'critical',
    format('%s of %s worker processes are in use, and there is none for the scheduler of this database.',
        w.used, current_setting('max_worker_processes')),
    format('alter system set max_worker_processes = %s; then restart PostgreSQL',
        current_setting('max_worker_processes')::int + 8)
from worker_process w
where w.schedulers = 0
    and w.used >= current_setting('max_worker_processes')::int
    and exists (select from unhealthy u where u.item = 'scheduler' and u.value = 'not running')
    and not exists (select from unhealthy u where u.item = 'library')
union all
select
    'scheduler_stuck', 'critical',
    format(case when t.value is null then 'Its process began %s ago, and has ended no cycle.' else 'Its process runs, and its last cycle began %s ago.' end,
        justify_interval(date_trunc('second', c.now - coalesce(to_timestamp(t.value), w.started_at)))),
    'See what it waits for: select pid, state, wait_event_type, wait_event, pg_blocking_pids(pid) from pg_stat_activity where backend_type = ''trax scheduler''; and the server log'
from clock c
cross join worker_process w
left join tally t on t.name = 'trax_last_cycle_timestamp_seconds'
where w.schedulers > 0
    and current_setting('trax.enabled', true) = 'on'
    and not exists (select from unhealthy u where u.item = 'scheduler')
    and coalesce(to_timestamp(t.value), w.started_at) < c.past - 2 * current_setting('trax.tick_interval', true)::interval
union all
select
    'code_of_others', 'critical',
    case
        when c.relation is null then format('%s calls %s(), which belongs to the role %s and would run with the rights of the owner of trax: no partitions of history can be made, and no rights granted.',
            o.object, c.function, quote_ident(c.owner))
        when c.function is null then format('%s is the type of a column of %s and belongs to the role %s, whose constraints could run any code with the rights of the owner of trax: jobs are refused.',
            o.object, c.relation, quote_ident(c.owner))
        else format('%s on %s calls %s(), which belongs to the role %s and would run with the rights of the owner of trax: jobs are refused.',
            o.object, c.relation, c.function, quote_ident(c.owner))
    end,
    format('Drop it, or, if you trust what it does: alter %s owner to %s',
        case when c.function is null then 'domain ' || substr(c.object, 6) else 'function ' || c.function_oid::regprocedure end, quote_ident(current_user))
from trax.code_of_others() c
cross join lateral (select upper(left(c.object, 1) collate "C") || substr(c.object, 2) as object) o
where not c.is_trusted
union all
select
    'trigger_right', 'critical',
    format('%s may create triggers on %s, and so run any code with the rights of the owner of trax.',
        case g.grantee when 0 then 'PUBLIC' else 'Role ' || quote_ident(pg_get_userbyid(g.grantee)) end, g.object),
    format('revoke trigger on %s from %s', g.object, case g.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end)
from trax.granted_rights() g
left join pg_roles r on r.oid = g.grantee
where g.privilege = 'trigger'
    and r.rolsuper is not true
union all
select
    'horizon_held', 'warning',
    format('Process %s (application "%s", user "%s", database "%s", %s) has held its snapshot for %s: nothing that was deleted since can be cleaned up. %s',
        a.pid, a.application_name, a.usename, a.datname, coalesce(a.state, a.backend_type),
        justify_interval(date_trunc('second', c.now - a.xact_start)),
        -- As the server itself would show it to the connected role, whatever role the call names.
        case
            when pg_has_role(session_user, 'pg_read_all_stats', 'usage') or pg_has_role(session_user, a.usesysid, 'usage')
                then 'It ran: ' || left(a.query, 80)
            else 'Members of pg_read_all_stats see its statement.'
        end),
    format('Let it end its transaction, or type: select pg_terminate_backend(%s); and set idle_in_transaction_session_timeout', a.pid)
from clock c
join pg_stat_activity a on a.xact_start <= c.past
where a.datname = current_database()
    and (a.backend_xmin is not null or a.backend_xid is not null)
    and a.backend_type not in ('autovacuum worker', 'trax scheduler', 'trax vacuum')
    and a.pid <> pg_backend_pid()
union all
select
    'prepared_transaction', 'warning',
    format('Transaction "%s" of user "%s" was prepared %s ago and holds its locks and the horizon.',
        p.gid, p.owner, justify_interval(date_trunc('second', c.now - p.prepared))),
    format('commit prepared %s; or: rollback prepared %s', quote_literal(p.gid), quote_literal(p.gid))
from clock c
join pg_prepared_xacts p on p.prepared <= c.past
where p.database = current_database()
union all
select
    'replication_slot_holds_horizon', 'warning',
    format('Replication slot "%s" (%s) keeps what %s transactions have deleted.',
        s.slot_name, case when s.active then 'in use' else 'not in use' end, age(s.xmin)),
    case
        when s.active then 'Find the long query on its standby, or set hot_standby_feedback = off there'
        else format('Start its standby, or type: select pg_drop_replication_slot(%s)', quote_literal(s.slot_name))
    end
from pg_replication_slots s
where s.xmin is not null
    and (not s.active or age(s.xmin) > 1000000)
union all
select
    'dead_tuples', 'warning',
    case
        when b.holder is null then format('trax.%s has %s dead rows beside %s live ones, and vacuum does not keep up: %s.',
            h.relname, t.n_dead_tup, t.n_live_tup, coalesce('it last ran ' || date_trunc('second', v.came), 'it has not run yet'))
        else format('trax.%s has %s dead rows beside %s live ones, and vacuum cannot remove them: %s holds the horizon.',
            h.relname, t.n_dead_tup, t.n_live_tup, b.holder)
    end,
    case
        when b.holder is null then format('vacuum trax.%I', h.relname)
        else format('End what holds the horizon (see the other causes), then: vacuum trax.%I', h.relname)
    end
from clock c
cross join hot h
join pg_stat_all_tables t on t.relid = h.oid
cross join lateral (select greatest(t.last_vacuum, t.last_autovacuum) as came) v
left join blocker b on true
where t.n_dead_tup > 50000 + 0.2 * greatest(h.tuples, t.n_live_tup)
    and (b.holder is not null or coalesce(v.came, pg_postmaster_start_time()) <= c.past)
union all
select
    'autovacuum_off', 'critical',
    format('The setting %s is off: dead rows stay in the queue for ever.', s.name),
    format('alter system set %s = on; select pg_reload_conf()', s.name)
from pg_settings s
where s.name in ('autovacuum', 'track_counts')
    and s.setting = 'off'
union all
select
    'autovacuum_off', 'critical',
    format('Autovacuum is off for trax.%s.', h.relname),
    format('alter table trax.%I reset (autovacuum_enabled)', h.relname)
from hot h
where exists (
    select
    from pg_options_to_table(h.reloptions) o
    where o.option_name = 'autovacuum_enabled'
        and not o.option_value::boolean
)
union all
select
    'setting_refused', 'critical',
    format('%s, line %s: %s = %s: %s', quote_literal(f.sourcefile), f.sourceline, quote_ident(f.name), quote_literal(f.setting), quote_literal(f.error)),
    format('alter system reset %s; or correct that line; then: select pg_reload_conf()', quote_ident(f.name))
from pg_file_settings f
where f.error is not null
    and not f.applied
    and (f.name like 'trax.%' or f.name in ('shared_preload_libraries', 'max_worker_processes'))
    and not exists (
        select
        from pg_settings s
        where s.name = f.name
            and s.pending_restart
    )
union all
select
    'home_travels_with_copies', 'warning',
    format('trax.home is set in %s, inside the data directory: a copy of the files includes it and runs this server''s jobs.', quote_literal(s.sourcefile)),
    'Move the line out of the data directory: include a file from elsewhere in postgresql.conf, or start the server with -c trax.home=...'
from pg_settings s
where s.name = 'trax.home'
    and starts_with(s.sourcefile, current_setting('data_directory') || '/')
union all
select
    'home_not_remembered', 'warning',
    format('trax.home is "%s", and this database was adopted without one: a copy of the files runs its jobs under any home.',
        current_setting('trax.home', true)),
    'select trax.adopt()'
from trax.adoption a
where a.home is null
    and nullif(current_setting('trax.home', true), '') is not null
    and not exists (select from unhealthy u where u.item = 'scheduler' and u.value = 'waiting for trax.adopt()')
union all
select
    'setting_waits_for_restart', 'warning',
    format('The setting %s was changed, but the change has not taken effect.', s.name),
    'Restart PostgreSQL'
from pg_settings s
where s.pending_restart
    and (s.name like 'trax.%' or s.name in ('shared_preload_libraries', 'max_worker_processes', 'max_connections', 'max_prepared_transactions'))
union all
select
    'missing_grants', 'warning',
    format('Role "%s" may call trax.%s() as level %s does, but not %s.', $2, m.known, m.level, m.missing),
    trax.grant_again($2, m.level)
        || case when m.has_another then '; -- this replaces another level of the role: to keep both, grant one of them to a role that it is a member of' else '' end
from (
    select
        l.level,
        l.known,
        l.level <> 'admin' and l.levels > 1 as has_another,
        string_agg(format('trax.%s()', p.proname), ', ' order by p.proname) as missing
    from (
        -- The levels whose best known function the role may call; an admin may call all of them.
        select v.level, v.known, count(*) over () as levels, bool_or(v.level = 'admin') over () as is_admin
        from (
            values ('reader', 'status'), ('producer', 'trigger'), ('worker', 'claim_next'), ('admin', 'schedule')
        ) v (level, known)
        where exists (
            select
            from pg_proc k
            where k.pronamespace = 'trax'::regnamespace
                and k.proname = v.known
                and has_function_privilege($2, k.oid, 'execute')
        )
    ) l
    join pg_proc p on p.pronamespace = 'trax'::regnamespace and p.proname = any (trax.functions_of(
        case
            when l.level in ('producer', 'worker') and has_function_privilege($2, 'trax.limited_access()', 'execute')
                then 'limited ' || l.level
            else l.level
        end
    ))
    where not has_function_privilege($2, p.oid, 'execute')
        and (l.level = 'admin' or not l.is_admin)
    group by 1, 2, 3
) m
union all
select
    'group_paused', 'warning',
    format('Group "%s" is disabled, and its jobs have waited since %s.', g.group_name, date_trunc('second', g.waiting)),
    format('select trax.configure_group(%s, enabled => true)', quote_literal(g.group_name))
from clock c
join group_load g on g.waiting <= c.past
where not g.enabled
union all
select m.cause, 'warning', m.detail, m.fix
from trax.trouble_of_rates() m
union all
select 'role_refused', 'warning', r.detail, r.fix
from trax.refused_roles() r
union all
select
    'limit_full', 'warning',
    format('%s of %s jobs of group "%s" are in progress, and others have waited since %s.',
        g.executed, g.max_active_jobs, g.group_name, date_trunc('second', g.waiting)),
    format('See what they do: select job_id, worker, task, started_at from trax.lease where group_name = %s; or: select trax.configure_group(%s, max_active_jobs => %s)',
        quote_literal(g.group_name), quote_literal(g.group_name), 2 * g.max_active_jobs)
from clock c
join group_load g on g.waiting <= c.past
where g.enabled
    and g.executed >= g.max_active_jobs
union all
select
    'limit_full', 'warning',
    format('%s jobs of this database are in progress, as many as trax.max_active_jobs allows, and others have waited since %s.',
        m.jobs, date_trunc('second', w.waiting)),
    format('See what they do: select job_id, worker, task, started_at from trax.lease; or: alter database %I set trax.max_active_jobs = %s',
        current_database(), 2 * m.jobs)
from clock c
cross join (select coalesce(nullif(current_setting('trax.max_active_jobs', true), '')::int, 0) as jobs) m
join (select min(g.waiting) as waiting from group_load g where g.enabled) w on w.waiting <= c.past
where m.jobs > 0
    and (select count(*) from (select from trax.lease limit m.jobs) l) >= m.jobs
union all
select
    u.cause, 'warning', u.detail,
    'Start a worker that handles it: trax worker --exec COMMAND' || (
        select string_agg(
            o.option
                -- Inside the shell's single quotes only the quote itself is special.
                || case when o.name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]*$' then o.name else '''' || replace(o.name, '''', '''' || chr(92) || '''''') || '''' end,
            '' order by o.option
        )
        from (values (' --task ', u.task), (' --version ', u.version)) o (option, name)
        where o.name is not null
    )
from unclaimed u
-- The oldest help the reader most.
where u.place <= 10
union all
select
    'runs_without_partition', 'warning',
    'trax.run_default has rows: no partition for their day existed when they were recorded, and that partition cannot be made while the rows are there.',
    'begin; create temp table moved on commit drop as table trax.run_default; delete from trax.run_default; select trax.make_run_partitions(d.day, 0) from (select distinct date_trunc(''day'', finished_at, ''UTC'') as day from moved) d; insert into trax.run select * from moved; commit'
where exists (select from trax.run_default)
union all
select
    'clock_was_ahead', 'warning',
    format('%s partitions of trax.run are for days more than 30 days ahead, from %s on: a cycle ran while the clock of this server was wrong.',
        count(*), min(p.day)),
    'Drop those that are empty: ' || string_agg(format('drop table trax.%I', p.relname), '; ' order by p.day)
from clock c
join (
    select c.relname, to_date(right(c.relname, 8), 'YYYYMMDD') as day
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'trax.run'::regclass
        and c.relname ~ '^run_[0-9]{8}$'
) p on p.day > (c.now at time zone 'UTC')::date + 30
having count(*) > 0
union all
select
    'move_broken_off', 'warning',
    format('%s jobs of group "%s" left for shard %s at %s, and their arrival is not confirmed.',
        coalesce(jsonb_array_length(d.cargo -> 'jobs'), 0), d.group_name, d.target, date_trunc('second', d.departed_at)),
    format('At the router: call trax_router.move_group(%s, %s, null)', quote_literal(d.group_name), d.target)
from clock c
join trax.departures() d on d.departed_at <= c.past
union all
select
    'notifications_full', 'warning',
    format('The queue of notifications of this server is %s%% full: a session that listens stays in a transaction. When it is full, NOTIFY fails, and workers find jobs and cancels by polling.',
        floor(100 * q.usage)),
    coalesce(
        'End the oldest: select pg_terminate_backend(' || (
            select a.pid
            from pg_stat_activity a
            where a.xact_start is not null
                and a.backend_type = 'client backend'
                and a.pid <> pg_backend_pid()
            order by a.xact_start
            limit 1
        ) || '); and set idle_in_transaction_session_timeout',
        'Look again: select * from trax.diagnose()')
from (select pg_notification_queue_usage() as usage) q
where q.usage > 0.5
union all
select
    'wraparound', case when w.age > 1500000000 then 'critical' else 'warning' end,
    format('This database is %s transactions old, more than twice autovacuum_freeze_max_age (%s): freezing does not keep up, and PostgreSQL stops at 2 billion.',
        w.age, w.freeze_max_age),
    'End what holds the horizon (see the other causes), then in this database: vacuum (freeze)'
from (
    select age(d.datfrozenxid) as age, current_setting('autovacuum_freeze_max_age')::int as freeze_max_age
    from pg_database d where d.datname = current_database()
) w
where w.age > least(2::bigint * w.freeze_max_age, 1200000000)
$$;
comment on function trax.diagnose(interval, name) is
    'Returns causes of trouble, each with its severity (critical or warning), what was seen and what to type. Waiting, snapshots and silence count when they last longer than patience; the grants of role are checked.';
