-- Producing jobs.
--
-- Functions to which a role's scope applies (sql/schema/access.sql) take the rights of their owner
-- by themselves: security definer would hide the caller.

-- A claim picks from lanes: a lane contains the waiting jobs of one task in one group, and each
-- version of the task, role of SQL jobs, or key of a rate has its own. Filters, priorities and
-- disabled groups select lanes and never touch a waiting row. A lane is not stored: it is a hash of
-- the names, and exists while it has a row.
create function trax.lane_of(
    group_name text,
    task text,
    run_as text default null,
    version text default null,
    rate text default null,
    rate_key text default null
)
returns bigint
language c immutable parallel safe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_lane_of';
comment on function trax.lane_of(text, text, text, text, text, text) is
    'Internal. Returns the lane of a group and a task, of a version or of the role of SQL jobs, and of a rate and its key: what trax.work_queue.lane_id must be for a row that is written by hand.';

create view trax.lane as
with recursive found as (
    (
        select q.lane_id, q.group_name, q.task, q.job_id, q.run_at, q.version, q.rate, q.rate_key
        from trax.work_queue q
        where q.waits_for is null
        order by q.lane_id, q.priority desc, q.job_id
        limit 1
    )
    union all
    select n.lane_id, n.group_name, n.task, n.job_id, n.run_at, n.version, n.rate, n.rate_key
    from found f
    cross join lateral (
        select q.lane_id, q.group_name, q.task, q.job_id, q.run_at, q.version, q.rate, q.rate_key
        from trax.work_queue q
        where q.waits_for is null
            and q.lane_id operator(pg_catalog.>) f.lane_id
        order by q.lane_id, q.priority desc, q.job_id
        limit 1
    ) n
)
select f.lane_id, f.group_name, f.task, f.job_id, f.run_at, f.version, f.rate, f.rate_key
from found f;
comment on view trax.lane is 'The groups, tasks and versions that have a job ready to be claimed, with the first of these; found one after the other, whatever waits in each.';
comment on column trax.lane.lane_id is 'Hash of group, task, version and rate, or of group and role for SQL jobs.';
comment on column trax.lane.group_name is 'The group.';
comment on column trax.lane.task is 'The task.';
comment on column trax.lane.job_id is 'The job of the lane that is claimed first.';
comment on column trax.lane.run_at is 'When that job became claimable.';
comment on column trax.lane.version is 'The version of its jobs; null if they have none.';
comment on column trax.lane.rate is 'The rate of its jobs; null if they have none.';
comment on column trax.lane.rate_key is 'The key of the rate of its jobs; null if they have none.';

create function trax.enqueue(
    task text,
    input jsonb default '{}',
    run_at timestamptz default null,
    group_name text default null,
    priority int default 0,
    max_retries int default null,
    timeout interval default null,
    unique_key text default null,
    concurrency_key text default null,
    trace jsonb default null,
    retry_delay interval default null,
    unique_for interval default null,
    version text default null,
    batch bigint default null,
    rate text default null,
    rate_key text default null,
    cost int default 1,
    on_duplicate text default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enqueue';
comment on function trax.enqueue(text, jsonb, timestamptz, text, int, int, interval, text, text, jsonb, interval, interval, text, bigint, text, text, int, text) is
    'Queues one job and returns its id. The job has max_retries attempts after the first; the delay before each begins with retry_delay and grows. While a job with the same unique_key is alive (waiting or executing), returns that job''s id and queues nothing; with unique_for the key stays alive at least so long after the job was queued. With on_duplicate => ''replace'' the job that waits gets the input and the options of this call, but keeps its time; with ''postpone'' its run_at too; a job that has begun is left alone, and a new job takes the key over. With a version, only workers that take this version, or that name no versions, claim the job. With a batch, the batch waits for the job, unless another job has its unique_key. With a rate, the job starts when the rate, or its rate_key, has room for the cost. Intervals are not numbers: write timeout => ''90 s''.';

create function trax.enqueue_many(
    task text,
    inputs jsonb[],
    run_at timestamptz default null,
    group_name text default null,
    priority int default 0,
    max_retries int default null,
    timeout interval default null,
    unique_key text default null,
    concurrency_key text default null,
    trace jsonb default null,
    retry_delay interval default null,
    unique_for interval default null,
    version text default null,
    batch bigint default null,
    rate text default null,
    rate_key text default null,
    cost int default 1,
    on_duplicate text default null
)
returns setof bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enqueue_many';
comment on function trax.enqueue_many(text, jsonb[], timestamptz, text, int, int, interval, text, text, jsonb, interval, interval, text, bigint, text, text, int, text) is
    'Queues one job for each input and returns their ids in the order of the inputs. A unique_key with several inputs is refused.';

create function trax.enqueue_sql(
    command text,
    run_at timestamptz default null,
    group_name text default null,
    priority int default 0,
    max_retries int default null,
    timeout interval default null,
    unique_key text default null,
    concurrency_key text default null,
    retry_delay interval default null,
    unique_for interval default null,
    run_as text default null,
    on_duplicate text default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enqueue_sql';
comment on function trax.enqueue_sql(text, timestamptz, text, int, int, interval, text, text, interval, interval, text, text) is
    'Queues a statement that the server runs, and returns the id of its job, whose task is sql. The statement runs in a session of the calling role, or of run_as, of which the caller must be a member. Several statements are one transaction, which takes effect exactly once; a statement that cannot run in a transaction (VACUUM) runs at least once. The other arguments are those of trax.enqueue.';

create function trax.run_now(
    job_id bigint
)
returns text
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_run_now';
comment on function trax.run_now(bigint) is
    'Makes a job claimable that waits for its next attempt or its run_at. Returns ''ready'', ''blocked'' (waiting for its concurrency key or manifest), ''in_progress'', ''finished'' or ''unknown''.';

create function trax.change_job(
    job_id bigint,
    input jsonb default null,
    run_at timestamptz default null,
    priority int default null,
    group_name text default null,
    max_retries int default null,
    timeout interval default null
)
returns text
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_change_job';
comment on function trax.change_job(bigint, jsonb, timestamptz, int, text, int, interval) is
    'Changes a job while it waits; a null keeps the value. Its id, age, attempts, steps and keys stay, and a job of a manifest stays in its group. Returns ''changed'', or changes nothing and returns where the job is: ''in_progress'', ''finished'', ''unknown'', or ''suspended'' when it waits for a signal or for jobs, and a run_at is given.';

create function trax.limit_queue_time(
    job_id bigint,
    time_limit interval default null
)
returns boolean
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_limit_queue_time';
comment on function trax.limit_queue_time(bigint, interval) is
    'Sets how long from now, or from its run_at, a job may wait, also for a retry; then the job ends as failed with the kind ''expired''. Null removes the limit. Returns false when the job does not wait for a worker.';

-- Fires for statements by hand and for those of the cycle, which it ignores; claims, completions
-- and enqueueing run no statement.
create function trax.changed_manually()
returns trigger
language c
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_changed_manually';
comment on function trax.changed_manually() is
    'Internal. Discards what shared memory knows of the queue when a statement of a user changes it, and the adoption when a restore does.';
create trigger work_queue_changed_manually
before insert or update or delete or truncate on trax.work_queue
for each statement execute function trax.changed_manually();
create trigger lease_changed_manually
before insert or update or delete or truncate on trax.lease
for each statement execute function trax.changed_manually();
create trigger manifest_group_changed_manually
before insert or update or delete or truncate on trax.manifest_group
for each statement execute function trax.changed_manually();

create function trax.input_here(
    input jsonb,
    run_as text
)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when $2 is null then $1
        else ($1 - 'role_oid') || coalesce(
            (select jsonb_build_object('role_oid', r.oid::bigint) from pg_roles r where r.rolname = $2), '{}'
        )
    end
$$;
comment on function trax.input_here(jsonb, text) is
    'Internal. Returns the input of a job that came from another server: a statement is that of the role with the name here, whose number is another there.';

create function trax.refused_roles()
returns table (
    detail text,
    fix text
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with statement as (
        select
            m.run_as, m.input ->> 'role_oid' as role_oid, format('manifest "%s"', m.name) as name,
            format('select trax.unschedule(%1$s); then schedule it again: select trax.schedule(%1$s, sql => ''...'', run_as => ''...'')',
                quote_literal(m.name)) as fix
        from trax.manifest m
        where m.run_as is not null
            and m.enabled
        union all
        select
            q.run_as, q.input ->> 'role_oid', format('job %s', q.job_id),
            format('select trax.cancel(%s); then queue it again: select trax.enqueue_sql(''...'', run_as => ''...'')', q.job_id)
        from (
            -- Ready jobs of such a role fail at once.
            select q.job_id, q.run_as, q.input
            from trax.work_queue q
            where q.waits_for = 'time'
            order by q.run_at
            limit 10000
        ) q
        where q.run_as is not null
    )
    select
        format('Role "%s" %s: statements that run as it fail, such as that of %s; there are %s.',
            s.run_as, p.problem, (min(array[s.name, s.fix]))[1], count(*)),
        case
            when p.is_dropped then (min(array[s.name, s.fix]))[2]
            else format('alter role %1$I login connection limit -1; grant connect on database %2$I to %1$I', s.run_as, current_database())
        end
    from statement s
    left join pg_roles a on
        case
            when s.role_oid is null then a.rolname = s.run_as
            else a.oid::text = s.role_oid
        end
    cross join lateral (
        select
            a.oid is null as is_dropped,
            case
                when a.oid is null then 'was dropped'
                else 'may not log in, or not connect to this database'
            end as problem
    ) p
    where not coalesce(
            a.rolcanlogin
                and (a.rolsuper or a.rolconnlimit <> 0)
                and has_database_privilege(a.oid, current_database(), 'connect'),
            false
        )
    group by s.run_as, p.is_dropped, p.problem
$$;
comment on function trax.refused_roles() is
    'Internal. Returns the roles of statements in whose sessions nothing can run, as trax.diagnose() words them.';
