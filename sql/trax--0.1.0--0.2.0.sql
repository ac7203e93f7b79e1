-- From 0.1.0 to 0.2.0. The changes of tables of 0.1.0 stand here; the rest comes from the files of
-- the install: scripts/install puts the files in the place of \include and, of an existing table,
-- its comments in the place of \comments. Functions and views of 0.1.0 that are not dropped here
-- are replaced, so that objects which depend on them stay.

\include schema/trust.sql
\include api/library.sql

-- An untrusted role could have put functions beside ours while the schema was open.
do $$
declare
    other text;
begin
    select pg_catalog.format('%s of role %I', p.oid::pg_catalog.regprocedure, pg_catalog.pg_get_userbyid(p.proowner))
    into other
    from pg_catalog.pg_proc p
    join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) p.proowner
    where p.pronamespace operator(pg_catalog.=) 'trax'::pg_catalog.regnamespace
        and not r.rolsuper
    order by p.oid
    limit 1;
    if other is not null then
        raise exception 'schema "trax" has a function of a role that is not a superuser'
            using errcode = '42501',
                detail = pg_catalog.format('Calls of trax could find %s first.', other),
                hint = 'Drop it, or move it to another schema, and type: alter extension trax update';
    end if;
end;
$$;

-- All tables are locked before any is changed. A session that waits for a lock makes all later
-- callers wait, so it waits a third of a second at most, and then lets them go first.
do $$
declare
    timeout_before constant text := pg_catalog.current_setting('lock_timeout');
    until constant timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) interval '30 s';
    tables text;
    holders text;
begin
    -- An autovacuum gives way to who has waited so long. A deadlock ends the update's try.
    set local deadlock_timeout = '100 ms';
    loop
        select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ' order by c.relname)
        into tables
        from pg_catalog.pg_class c
        where c.relnamespace operator(pg_catalog.=) 'trax'::pg_catalog.regnamespace
            and c.relkind in ('r', 'p')
            and not c.relispartition;
        begin
            set local lock_timeout = '300 ms';
            execute 'lock table ' operator(pg_catalog.||) tables operator(pg_catalog.||) ' in access exclusive mode';
            perform pg_catalog.set_config('lock_timeout', timeout_before, true);
            exit;
        exception
            when lock_not_available or deadlock_detected then
                null;
        end;
        if pg_catalog.clock_timestamp() operator(pg_catalog.>) until then
            select pg_catalog.string_agg(distinct coalesce(
                pg_catalog.format('process %s', l.pid),
                pg_catalog.format('prepared transaction "%s"', p.gid)
            ), ', ')
            into holders
            from pg_catalog.pg_locks l
            join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.relation
            left join pg_catalog.pg_prepared_xacts p
                on l.virtualtransaction operator(pg_catalog.=) ('-1/' operator(pg_catalog.||) p.transaction::text)
            where l.locktype operator(pg_catalog.=) 'relation'
                and l.granted
                and l.database operator(pg_catalog.=) (
                    select d.oid from pg_catalog.pg_database d where d.datname operator(pg_catalog.=) pg_catalog.current_database()
                )
                and l.pid is distinct from pg_catalog.pg_backend_pid()
                and c.relnamespace operator(pg_catalog.=) 'trax'::pg_catalog.regnamespace;
            raise exception 'the tables of trax are in use'
                using errcode = '55P03',
                    detail = pg_catalog.format('They could not be locked together for 30 s. At last they were held by %s.', coalesce(holders, 'nobody')),
                    hint = 'End the transactions that are open for long: select pg_terminate_backend(...); or stop the workers; then type: alter extension trax update';
        end if;
        perform pg_catalog.pg_sleep(0.1);
    end loop;
end;
$$;

-- The highest level of which each role has all functions, and whether it has other rights. Rights
-- on functions of no level come from default privileges, and not from trax.grant_access().
create table trax.level_before as
with level as (
    select
        v.place, v.level,
        array(
            select f.name
            from pg_catalog.unnest(trax.functions_of(v.level)) f (name)
            where exists (
                select
                from pg_catalog.pg_proc p
                where p.pronamespace operator(pg_catalog.=) 'trax'::pg_catalog.regnamespace
                    and p.proname::text operator(pg_catalog.=) f.name
            )
        ) as functions
    from (values (1, 'admin'), (2, 'worker'), (3, 'producer'), (4, 'reader')) v (place, level)
), role as (
    select
        g.oid,
        pg_catalog.array_remove(pg_catalog.array_agg(g.name), null) as functions,
        pg_catalog.bool_or(g.reads) as reads
    from (
        select a.grantee as oid, p.proname::text as name, false as reads
        from pg_catalog.pg_proc p
        cross join pg_catalog.aclexplode(p.proacl) a
        where p.pronamespace operator(pg_catalog.=) 'trax'::pg_catalog.regnamespace
            and a.grantee operator(pg_catalog.<>) p.proowner
        union
        select a.grantee, null, c.relname operator(pg_catalog.<>) 'new_job'
        from pg_catalog.pg_class c
        cross join pg_catalog.aclexplode(c.relacl) a
        where c.relnamespace operator(pg_catalog.=) 'trax'::pg_catalog.regnamespace
            and a.grantee operator(pg_catalog.<>) c.relowner
    ) g
    group by g.oid
)
select
    r.oid as role, l.level,
    not r.functions operator(pg_catalog.<@) l.functions or (r.reads and l.level operator(pg_catalog.=) any (array['worker', 'producer']))
        as has_more
from role r
left join lateral (
    select l.level, l.functions
    from level l
    where r.functions operator(pg_catalog.@>) l.functions
        and not r.functions operator(pg_catalog.@>) array['installed']
    order by l.place
    limit 1
) l on true;

-- lane: claims find lanes in the work queue.
drop trigger work_queue_changed_by_hand on trax.work_queue;
drop trigger lease_changed_by_hand on trax.lease;
drop trigger manifest_group_changed_by_hand on trax.manifest_group;
drop trigger lease_deadline_changed_by_hand on trax.lease;
alter extension trax drop table trax.lane;
do $$
declare
    dropped text;
    dependents text;
begin
    foreach dropped in array array[
        'table trax.lane',
        'function trax.adopt()',
        'function trax.apply(jsonb, boolean, boolean)',
        'function trax.cancel(bigint)',
        'function trax.changed_by_hand()',
        'function trax.check()',
        'function trax.claim_next(text, int, text[], text[], interval)',
        'function trax.complete(bigint, uuid, jsonb)',
        'function trax.complete_and_claim(bigint[], uuid[], jsonb[], text, int, text[], text[], interval)',
        'function trax.configure_group(text, int, int, boolean, int)',
        'function trax.deadline_changed_by_hand()',
        'function trax.enqueue(text, jsonb, timestamptz, text, int, int, interval, text, text, jsonb)',
        'function trax.enqueue_many(text, jsonb[], timestamptz, text, int, int, interval, text, text, jsonb)',
        'function trax.fail(bigint, uuid, text, jsonb, interval, boolean)',
        'function trax.grant_access(regrole, text)',
        'function trax.heartbeat(bigint[], uuid[], interval)',
        'function trax.requeue_dead_letter(bigint, text)',
        'function trax.schedule(text, text, jsonb, text, interval, timestamptz, text[], text, boolean, text, text, int, int, interval, interval, text, interval, int, text, int, interval, jsonb, timestamptz, timestamptz, boolean)'
    ]
    loop
        execute pg_catalog.format('drop %s', dropped);
    end loop;
exception
    when dependent_objects_still_exist then
        get stacked diagnostics dependents = pg_exception_detail;
        raise exception 'objects that are not of trax depend on %, which this update replaces', dropped
            using errcode = '2BP01',
                detail = dependents,
                hint = 'Drop them, type: alter extension trax update; and create them again. A function whose body is a text depends on nothing and can stay.';
end;
$$;

-- instance
\include api/instance.sql
alter table trax.instance drop constraint instance_pkey;
alter table trax.instance replica identity full;
\comments schema/instance.sql
\include schema/adoption.sql
\include schema/believed_clock.sql

\include schema/rate.sql

-- group
alter table trax.manifest_group
    add column source text collate "C",
    add column rate text collate "C",
    add column max_waiting int,
    add column overflow text not null default 'reject',
    add constraint manifest_group_max_waiting_positive check (max_waiting > 0),
    add constraint manifest_group_overflow_known check (overflow in ('reject', 'drop_newest', 'drop_oldest'));
create index manifest_group_full on trax.manifest_group (name) where max_waiting is not null;
create index manifest_group_special on trax.manifest_group (name)
    where priority <> 0 or not enabled or rate is not null;
\comments schema/group.sql
\include schema/task.sql
\include schema/admission.sql

-- manifest
alter table trax.manifest
    add column on_dead_letter text not null default 'stop',
    add column source text collate "C",
    add column run_as text collate "C",
    add constraint manifest_only_sql_runs_as_a_role check (run_as is null or task = 'sql'),
    add constraint manifest_on_dead_letter_known check (on_dead_letter in ('stop', 'continue'));
alter table trax.manifest_state add column decided_at timestamptz;
\comments schema/manifest.sql

-- work_queue
alter table trax.work_queue
    add column run_as text collate "C",
    add column steps int,
    add column parent_job_id bigint,
    add column wait_until timestamptz,
    add column version text collate "C",
    add column rate text collate "C",
    add column rate_key text collate "C",
    add column cost int,
    drop constraint work_queue_waits_for_known,
    add constraint work_queue_waits_for_known check (waits_for in ('time', 'key', 'manifest', 'signal', 'jobs')),
    add constraint work_queue_steps_positive check (steps > 0),
    add constraint work_queue_wait_until_of_suspended check (wait_until is null or waits_for in ('signal', 'jobs')),
    add constraint work_queue_cost_of_rate check ((rate is null) = (cost is null) and cost > 0),
    add constraint work_queue_rate_key_of_rate check (rate_key is null or rate is not null),
    add constraint work_queue_only_sql_runs_as_a_role check (run_as is null or task = 'sql');
alter table trax.work_queue set (autovacuum_vacuum_cost_delay = 0);
-- The number of a lane is a different hash of its names than before. Rewriting the table takes a
-- third of the time and the WAL of an update of every row. The server refuses it where a view, a
-- policy or a trigger of a user names the column.
create function trax.lane_of_waiting(
    text, text, text default null, text default null, text default null, text default null
)
returns bigint
language c immutable
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_lane_of';
do $$
begin
    alter table trax.work_queue alter column lane_id type bigint using trax.lane_of_waiting(group_name, task);
exception
    when feature_not_supported then
        update trax.work_queue set lane_id = trax.lane_of_waiting(group_name, task);
end;
$$;
drop function trax.lane_of_waiting(text, text, text, text, text, text);
create index work_queue_wait_until on trax.work_queue (wait_until) where wait_until is not null;
create index work_queue_suspended on trax.work_queue (waits_for, job_id) where waits_for in ('signal', 'jobs');
create index work_queue_rate on trax.work_queue (rate, cost) where rate is not null;
create index work_queue_sql on trax.work_queue (run_as, job_id) where run_as is not null and waits_for is null;
alter table trax.unique_key
    add column ended boolean not null default false,
    add column alive_until timestamptz,
    add constraint unique_key_of_ended_job_has_time check (not ended or alive_until is not null);
create index unique_key_ended on trax.unique_key (alive_until) where ended;
\comments schema/work_queue.sql

-- lease: no worker of 0.1.0 fetches ahead or reports extensions; its next heartbeat does.
alter table trax.lease
    add column extended_at timestamptz default pg_catalog.clock_timestamp(),
    add column ahead boolean not null default false,
    add column run_as text collate "C",
    add column parent_job_id bigint,
    add column version text collate "C",
    add column rate text collate "C",
    add column rate_key text collate "C",
    add column cost int,
    add constraint lease_priority_range check (priority between 0 and 31),
    add constraint lease_max_retries_not_negative check (max_retries >= 0),
    add constraint lease_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    add constraint lease_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days');
update trax.lease set extended_at = lease_expires_at where lease_expires_at < extended_at;
alter table trax.lease set (autovacuum_vacuum_cost_delay = 0);
alter table trax.lease alter reap_at drop not null;
drop index trax.lease_reap_at;
drop index trax.lease_limited;
drop index trax.lease_concurrency_key;
drop index trax.lease_manifest;
create index lease_limited on trax.lease (group_name, job_id) where limited;
create index lease_concurrency_key on trax.lease (concurrency_key, job_id) where concurrency_key is not null;
create index lease_manifest on trax.lease (manifest_id, job_id) where manifest_id is not null;
create index lease_sql on trax.lease (job_id) where run_as is not null;
\comments schema/lease.sql
\include schema/lease_extension.sql

-- run: no row is rewritten, however long the history is.
alter table trax.run
    add column parent_job_id bigint,
    add column steps jsonb,
    add column version text collate "C",
    add column rate text collate "C",
    add column rate_key text collate "C",
    add column cost int,
    add column max_retries int,
    add column timeout interval,
    add column retry_delay interval,
    add column concurrency_key text collate "C",
    add column trace jsonb;
alter table trax.run replica identity full;
do $$
declare
    partition regclass;
begin
    for partition in
        select i.inhrelid::pg_catalog.regclass
        from pg_catalog.pg_inherits i
        join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) i.inhrelid
        where i.inhparent operator(pg_catalog.=) 'trax.run'::pg_catalog.regclass
            and c.relkind operator(pg_catalog.=) 'r'
            and c.relreplident operator(pg_catalog.<>) 'f'
    loop
        execute pg_catalog.format('alter table %s replica identity full', partition);
    end loop;
end;
$$;
\comments schema/run.sql

\comments schema/progress.sql
\include schema/workflow.sql

-- dead_letter
alter table trax.dead_letter
    add column run_as text collate "C",
    add column steps jsonb,
    add column undone boolean not null default false,
    add column version text collate "C",
    add column rate text collate "C",
    add column rate_key text collate "C",
    add column cost int,
    add constraint dead_letter_priority_range check (priority between 0 and 31),
    add constraint dead_letter_attempts_not_negative check (attempts >= 0),
    add constraint dead_letter_max_retries_not_negative check (max_retries >= 0),
    add constraint dead_letter_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    add constraint dead_letter_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    add constraint dead_letter_manifest_has_id check ((manifest is null) = (manifest_id is null));
\comments schema/dead_letter.sql

-- token
alter table trax.concurrency_token add column extended_at timestamptz not null default pg_catalog.clock_timestamp();
update trax.concurrency_token set extended_at = expires_at where expires_at < extended_at;
\comments schema/token.sql

-- worker
alter table trax.worker
    add column period interval,
    add column stopping boolean not null default false,
    add constraint worker_period_range check (period > interval '0' and period <= interval '3660 days');
alter table trax.worker set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
\comments schema/worker.sql

\include schema/cleanup.sql
\include schema/unreadable_job.sql
\include schema/audit.sql
\include schema/access.sql

\include api/rights.sql
\include api/work_queue.sql

update trax.lease set lane_id = trax.lane_of(group_name, task);

\include api/new_job.sql
alter foreign table trax.new_job
    add column retry_delay interval,
    add column unique_for interval,
    add column version text,
    add column batch bigint,
    add column rate text,
    add column rate_key text,
    add column cost int,
    add column on_duplicate text;
\comments schema/new_job.sql
\include api/claim.sql
\include api/lease.sql
\include api/outcome.sql
\include api/manifest.sql
\include api/task.sql
\include api/dead_letter.sql
\include api/shard.sql
\include api/cycle.sql
\include api/token.sql
\include api/rate.sql
\include api/scheduler.sql
\include api/run.sql
\include api/await_job.sql
\include api/workflow.sql
\include api/graph.sql
\include api/check.sql
\include api/metrics.sql
\include api/status.sql
\include api/explain.sql
\include api/explain_manifest.sql
\include api/access.sql
\include api/diagnose.sql

-- Objects belong to the owner, also after an update by another superuser.
do $$
declare
    owner constant text := (
        select pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(e.extowner)) from pg_catalog.pg_extension e where e.extname = 'trax'
    );
    object text;
begin
    for object in
        select pg_catalog.format('routine %s', p.oid::pg_catalog.regprocedure)
        from pg_catalog.pg_proc p
        where p.pronamespace = 'trax'::pg_catalog.regnamespace
            and p.proowner <> owner::pg_catalog.regrole
        union all
        select pg_catalog.format('table %s', c.oid::pg_catalog.regclass)
        from pg_catalog.pg_class c
        where c.relnamespace = 'trax'::pg_catalog.regnamespace
            and c.relkind in ('r', 'p', 'v', 'f')
            and c.relowner <> owner::pg_catalog.regrole
    loop
        execute pg_catalog.format('alter %s owner to %s', object, owner);
    end loop;
end;
$$;

\include grants.sql

-- As trax.grant_access() would have granted it in a fresh install.
do $$
declare
    before record;
    lost text;
begin
    for before in
        select coalesce(pg_catalog.quote_ident(r.rolname), 'public') as role, b.level, b.has_more
        from trax.level_before b
        left join pg_catalog.pg_roles r on r.oid = b.role
        order by r.rolname
    loop
        if before.level is not null and before.role <> 'public' then
            perform trax.regrant_access(before.role::pg_catalog.regrole, before.level);
        end if;
        lost := case
            when before.level is null or before.role = 'public' then pg_catalog.format('Role %s had rights that no level has.', before.role)
            when before.has_more then pg_catalog.format('Role %s had other rights than those of the level %s, which it keeps.', before.role, before.level)
        end;
        if lost is not null then
            raise warning 'rights on trax were revoked from role %', before.role
                using detail = lost,
                    hint = 'A role has one level: trax.grant_access(role => ..., level => ...); for two grant one of them to a role that the other is a member of.';
        end if;
    end loop;
end;
$$;
drop table trax.level_before;
