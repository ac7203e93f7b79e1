-- run: partitions, and the view of all jobs. The functions are internal: the install script and the
-- cycle call them.

create function trax.run_partitions()
returns table (
    partition regclass,
    name text,
    period tstzrange
)
language sql stable
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO'
as $$
select
    p.oid::regclass,
    format('%I.%I', p.nspname, p.relname),
    tstzrange(nullif(p.bounds[1], 'MINVALUE')::timestamptz, nullif(p.bounds[2], 'MAXVALUE')::timestamptz)
from (
    select
        c.oid,
        n.nspname,
        c.relname,
        regexp_match(
            replace(pg_get_expr(c.relpartbound, c.oid), '''', ''),
            '^FOR VALUES FROM [(](.+)[)] TO [(](.+)[)]$'
        ) as bounds
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    join pg_namespace n on n.oid = c.relnamespace
    where i.inhparent = 'trax.run'::regclass
        and c.oid <> 'trax.run_default'::regclass
) p
-- Without bounds: dropped since the snapshot.
where p.bounds is not null
$$;
comment on function trax.run_partitions() is
    'Internal. Returns the partitions of trax.run, whoever made them, with the time that each is for; the default one left out.';

create function trax.make_run_partition(partition_name text, period tstzrange, rows_at_most int)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
set datestyle = 'ISO'
as $$
#variable_conflict use_variable
declare
    in_tablespace text;
    waiting bigint;
begin
    select format(' tablespace %I', t.spcname)
    into in_tablespace
    from pg_class c
    join pg_tablespace t on t.oid = c.reltablespace
    where c.oid = 'trax.run'::regclass;
    -- Attaching needs a weaker lock than creating in place: writers of trax.run continue meanwhile.
    execute format(
        'create table trax.%I (like trax.run_default including all)%s', partition_name, coalesce(in_tablespace, '')
    );
    -- Default privileges may have granted rights on it.
    perform trax.withdraw_rights(relation => to_regclass('trax.' || quote_ident(partition_name)));
    -- Its rows never change until it is dropped; only the default partition deletes rows, those
    -- that it passes on.
    execute format('alter table trax.%I replica identity full', partition_name);
    select count(*)
    into waiting
    from (
        select
        from trax.run_default r
        where r.finished_at >= lower(period)
            and r.finished_at < upper(period)
        limit rows_at_most + 1
    ) r;
    if waiting > 0 and waiting <= rows_at_most then
        lock table trax.run_default in access exclusive mode;
        execute format(
            'with moved as (
                delete from trax.run_default r
                where r.finished_at >= $1
                    and r.finished_at < $2
                returning *
            )
            insert into trax.%I
            select *
            from moved', partition_name
        )
        using lower(period), upper(period);
    end if;
    execute format(
        'alter table trax.run attach partition trax.%I for values from (%L) to (%L)',
        partition_name, lower(period), upper(period)
    );
    -- A member of the extension could not be dropped, and a dump would leave it out.
    if exists (
        select
        from pg_depend d
        where d.classid = 'pg_class'::regclass
            and d.objid = to_regclass('trax.' || quote_ident(partition_name))
            and d.deptype = 'e'
    ) then
        execute format('alter extension trax drop table trax.%I', partition_name);
    end if;
end;
$$;
comment on function trax.make_run_partition(text, tstzrange, int) is
    'Internal. Makes a partition of trax.run for a time that none covers; moves rows of that time out of the default partition, unless they are too many.';

create function trax.make_run_partitions(moment timestamptz, days_ahead int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
set datestyle = 'ISO'
set timezone = 'GMT'
as $$
declare
    first_day constant timestamptz := date_trunc('day', moment, 'UTC');
    -- This many rows leave the default partition in a second or two, while its readers wait.
    rows_at_most constant int := 200000;
    day timestamptz;
    open_periods tstzmultirange;
    period tstzrange;
    partition_name text;
    made int := 0;
begin
    perform trax.refuse_foreign_code();
    for day in select first_day + n * interval '1 day' from generate_series(0, days_ahead) n
    loop
        -- A user's own partition may cover the day, or a part of it. Reading the bounds of a
        -- partition waits for a session that is dropping it.
        begin
            select
                tstzmultirange(tstzrange(day, day + interval '1 day'))
                - coalesce(range_agg(p.period) filter (where not isempty(p.period)), '{}'::tstzmultirange)
            into open_periods
            from trax.run_partitions() p;
        exception
            when lock_not_available then
                return made;
        end;
        for period in select unnest(open_periods)
        loop
            -- A user's table, or a part of the day, may have the name.
            select n.name
            into partition_name
            from (
                select 'run_' || to_char(day, 'YYYYMMDD') || case when n > 0 then '_' || n else '' end as name, n
                from generate_series(0, 99) n
            ) n
            where to_regclass('trax.' || quote_ident(n.name)) is null
            order by n.n
            limit 1;
            begin
                perform trax.make_run_partition(partition_name, period, rows_at_most);
                made := made + 1;
            exception
                -- A reader has the default partition locked: each other day would wait as long.
                when lock_not_available then
                    return made;
                -- The default partition has too many rows of that day, which stays there. Or
                -- another session is creating the partition.
                when check_violation or duplicate_table or unique_violation or invalid_object_definition
                    or deadlock_detected then
                    null;
            end;
        end loop;
    end loop;
    return made;
end;
$$;
comment on function trax.make_run_partitions(timestamptz, int) is
    'Internal. Makes the daily partitions of trax.run for the UTC day of a time and the days after it, where none covers them; returns how many.';

create function trax.drop_run_partitions(before timestamptz)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
set datestyle = 'ISO'
as $$
declare
    old_partitions text[] := '{}';
    partition_name text;
    dropped int := 0;
begin
    perform trax.refuse_foreign_code();
    -- By their bounds and not by their name: a user may have created one. Reading the bounds of a
    -- partition waits for a session that is dropping it.
    begin
        select array_agg(p.name order by p.upper_bound)
        into old_partitions
        from (
            select
                format('%I.%I', n.nspname, c.relname) as name,
                substring(pg_get_expr(c.relpartbound, c.oid) from ' TO [(]''([^'']+)''[)]$')::timestamptz as upper_bound
            from pg_inherits i
            join pg_class c on c.oid = i.inhrelid
            join pg_namespace n on n.oid = c.relnamespace
            where i.inhparent = 'trax.run'::regclass
        ) p
        where p.upper_bound <= date_trunc('day', before, 'UTC');
    exception
        when lock_not_available then
            return 0;
    end;
    foreach partition_name in array coalesce(old_partitions, '{}')
    loop
        begin
            execute format('drop table if exists %s', partition_name);
            dropped := dropped + 1;
        exception
            when lock_not_available then
                -- A reader of one day has the table locked: each other day would wait as long.
                exit;
        end;
    end loop;
    -- Rows without a partition: few, or none.
    begin
        delete from trax.run_default r
        where r.ctid = any (array(
            select o.ctid
            from trax.run_default o
            where o.finished_at < before
            limit 10000
        ));
    exception
        -- Another session is dropping or creating a partition; the next cleanup deletes the rows.
        when lock_not_available then
            null;
    end;
    return dropped;
end;
$$;
comment on function trax.drop_run_partitions(timestamptz) is
    'Internal. Drops the partitions of trax.run that end at or before a time, and rows of that age that found no partition; returns how many partitions.';

-- A restore brings its own partitions (see trax.instance for how it is recognized).
select trax.make_run_partitions(clock_timestamp(), 3)
where not trax.is_loading_dump();

-- A dump of an older version defines each partition with the columns of its time, which cannot be
-- attached to the table of today.
create function trax.attach_run_partitions()
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'GMT'
as $$
declare
    part record;
    missing record;
    attached int := 0;
begin
    for part in
        select c.oid, to_date(substr(c.relname, 5, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' as day
        from pg_class c
        join pg_class r on r.oid = 'trax.run'::regclass
        where c.relnamespace = 'trax'::regnamespace
            and c.relkind = 'r'
            and not c.relispartition
            and c.relowner = r.relowner
            and c.relname ~ '^run_[0-9]{8}$'
    loop
        begin
            for missing in
                select
                    a.attname,
                    format_type(a.atttypid, a.atttypmod)
                        || coalesce(' collate ' || nullif(a.attcollation, 0)::regcollation::text, '') as type
                from pg_attribute a
                where a.attrelid = 'trax.run'::regclass
                    and a.attnum > 0
                    and not a.attisdropped
                    and not exists (
                        select
                        from pg_attribute o
                        where o.attrelid = part.oid
                            and o.attname = a.attname
                            and not o.attisdropped
                    )
                order by a.attnum
            loop
                execute format('alter table %s add column %I %s', part.oid::regclass, missing.attname, missing.type);
            end loop;
            execute format(
                'alter table trax.run attach partition %s for values from (%L) to (%L)',
                part.oid::regclass, part.day, part.day + interval '1 day'
            );
            attached := attached + 1;
        exception
            when others then
                raise warning 'table % cannot become a partition of trax.run', part.oid::regclass
                    using detail = sqlerrm,
                        hint = 'Its rows are no part of the history. Attach it by hand, or drop it.';
        end;
    end loop;
    return attached;
end;
$$;
comment on function trax.attach_run_partitions() is
    'Internal. Attaches the daily partitions of trax.run that a dump of an older version could not attach, after adding the columns that they lack.';

create view trax.job
as
select
    q.job_id,
    'queued'::text as state,
    q.attempts as attempt,
    q.task,
    q.input,
    q.manifest,
    q.group_name,
    q.priority,
    q.run_at,
    q.scheduled_for,
    q.queued_at,
    null::timestamptz as started_at,
    null::timestamptz as finished_at,
    null::text as worker,
    case
        when q.attempts > 0 then (
            select r.error
            from trax.run r
            where r.job_id = q.job_id
            order by r.attempt desc
            limit 1
        )
    end as error,
    null::jsonb as output,
    null::jsonb as progress,
    q.parent_job_id,
    q.version,
    q.rate,
    q.rate_key,
    q.cost
from trax.work_queue q
union all
select
    l.job_id,
    'in_progress',
    l.attempt,
    l.task,
    l.input,
    l.manifest,
    l.group_name,
    l.priority,
    l.run_at,
    l.scheduled_for,
    l.queued_at,
    l.started_at,
    null,
    l.worker,
    null,
    null,
    (
        select p.progress
        from trax.progress p
        where p.job_id = l.job_id
            and p.token = l.token
    ),
    l.parent_job_id,
    l.version,
    l.rate,
    l.rate_key,
    l.cost
from trax.lease l
union all
select
    r.job_id,
    r.state,
    r.attempt,
    r.task,
    r.input,
    r.manifest,
    r.group_name,
    r.priority,
    r.run_at,
    r.scheduled_for,
    r.queued_at,
    r.started_at,
    r.finished_at,
    r.worker,
    r.error,
    r.output,
    null,
    r.parent_job_id,
    r.version,
    r.rate,
    r.rate_key,
    r.cost
from trax.run r
where r.final;

comment on view trax.job is 'One row for each job, wherever it is.';
comment on column trax.job.job_id is 'Identity of the job.';
comment on column trax.job.state is 'queued, in_progress, completed, failed or cancelled.';
comment on column trax.job.attempt is 'How many attempts it had, the one in progress included.';
comment on column trax.job.task is 'The task.';
comment on column trax.job.input is 'Input for the task.';
comment on column trax.job.manifest is 'Name of the manifest it came from.';
comment on column trax.job.group_name is 'The group it belongs to.';
comment on column trax.job.priority is 'Priority of the job, 0 to 31.';
comment on column trax.job.run_at is 'Not claimable before this time.';
comment on column trax.job.scheduled_for is 'The occurrence of its manifest that it represents.';
comment on column trax.job.queued_at is 'When the job was first queued.';
comment on column trax.job.started_at is 'When its last attempt was claimed.';
comment on column trax.job.finished_at is 'When it ended.';
comment on column trax.job.worker is 'Who executes or executed it.';
comment on column trax.job.error is 'The error of its last attempt, if that failed.';
comment on column trax.job.output is 'What the task returned.';
comment on column trax.job.progress is 'While it is executed: how far it is, as last reported.';
comment on column trax.job.parent_job_id is 'The job that spawned it, or whose steps it undoes.';
comment on column trax.job.version is 'The version of the program that it needs; null is any.';
comment on column trax.job.rate is 'The rate under which it starts; null if none limits it.';
comment on column trax.job.rate_key is 'The key of the rate that it uses; null for the rate without a key.';
comment on column trax.job.cost is 'How much of the rate it uses; null without a rate.';

create view trax.worker_state
as
select
    coalesce(w.name, l.worker) as name,
    case
        when w.name is null then 'working'
        when w.last_seen_at + 2 * coalesce(w.period, interval '1 min') < clock_timestamp()
            and (w.period is not null or not coalesce(l.is_held, false))
            -- An executor without a statement reports nothing; its process id is in its name.
            and not exists (
                select
                from pg_stat_activity a
                where w.name = 'trax executor:' || a.pid
            ) then 'gone'
        when w.stopping then 'stopping'
        when l.running > 0 then 'working'
        else 'idle'
    end as state,
    coalesce(l.running, 0) as running,
    coalesce(l.running_tasks, '{}') as running_tasks,
    l.oldest_started_at,
    w.started_at,
    w.last_seen_at,
    w.info ->> 'version' as version,
    w.info ->> 'host' as host,
    w.info
from trax.worker w
full join (
    select
        o.worker,
        count(*) as running,
        min(o.started_at) as oldest_started_at,
        bool_or(o.lease_expires_at > clock_timestamp()) as is_held,
        array_agg(distinct o.task order by o.task) as running_tasks
    from trax.lease o
    group by o.worker
) l on l.worker = w.name;

comment on view trax.worker_state is 'One row for each worker that is registered or holds a lease.';
comment on column trax.worker_state.name is 'Name of the worker.';
comment on column trax.worker_state.state is 'working, idle, stopping (it claims no more), or gone: not heard of for two of its reports, or, when it makes none, for two minutes without a lease.';
comment on column trax.worker_state.running is 'How many leases it holds.';
comment on column trax.worker_state.running_tasks is 'The tasks of these.';
comment on column trax.worker_state.oldest_started_at is 'When the oldest of these was claimed.';
comment on column trax.worker_state.started_at is 'When it registered.';
comment on column trax.worker_state.last_seen_at is 'When it was last heard of.';
comment on column trax.worker_state.version is 'Its version, as it reports it.';
comment on column trax.worker_state.host is 'Its machine, as it reports it.';
comment on column trax.worker_state.info is 'What it reports about itself.';

create function trax.worker_takes(
    info jsonb,
    task text,
    group_name text,
    version text default null
)
returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select bool_and(coalesce(jsonb_typeof($1 -> n.kind), 'null') <> 'array' or n.name is null or $1 -> n.kind ? n.name)
    from (values ('tasks', $2), ('groups', $3), ('versions', $4)) n (kind, name)
$$;
comment on function trax.worker_takes(jsonb, text, text, text) is
    'Internal. Returns whether a worker that reports this claims such jobs: without a list it takes all, and each takes jobs without a version.';
