-- Numbers for monitoring.
--
-- Nothing here reads history or all waiting jobs: up to 1,000 pages of the queue are counted, and
-- as many of a larger queue are sampled; the first jobs of each lane are always counted.

create function trax.tallies()
returns table (
    name text,
    labels jsonb,
    value double precision
)
language c volatile
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_tallies';
comment on function trax.tallies() is
    'Internal. Returns what was counted in shared memory since the server started; without preloading only the version of the library.';

create function trax.queue_depth()
returns table (
    group_name text,
    state text,
    jobs double precision,
    oldest timestamptz
)
language sql stable
set search_path = pg_catalog, pg_temp
-- Plans that do not depend on statistics: a queue may have filled since the last ANALYZE.
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
with lane as materialized (
    select l.lane_id, l.group_name
    from trax.lane l
), size as materialized (
    select
        least(100, 100.0 * 1000 / greatest(pg_relation_size('trax.work_queue') / current_setting('block_size')::bigint, 1))::real
            as percent,
        greatest(20, 20000 / greatest((select count(*) from lane), 1)) as probed
), sampled as materialized (
    select
        q.lane_id,
        q.group_name,
        case q.waits_for
            when 'time' then 'delayed'
            when 'key' then 'blocked'
            when 'manifest' then 'behind_manifest'
            when 'signal' then 'suspended'
            when 'jobs' then 'suspended'
            else 'ready'
        end as state,
        q.jobs * (100 / s.percent) as jobs,
        q.oldest
    from size s
    cross join lateral (
        -- A lane has jobs of one group. Grouped by lane alone, 75,000 rows take 18 ms, not 25.
        select w.lane_id, min(w.group_name) as group_name, w.waits_for, count(*) as jobs, min(w.run_at) as oldest
        from trax.work_queue w tablesample system (s.percent) repeatable (0)
        group by w.lane_id, w.waits_for
    ) q
), probed as materialized (
    -- The rows that a sample would miss: the first of each lane, and of each of its priorities,
    -- where a job may wait for long behind others.
    select l.lane_id, 'ready' as state, p.jobs, least(p.oldest, f.oldest) as oldest, p.jobs < s.probed as exact
    from size s
    cross join lane l
    cross join lateral (
        select count(*) as jobs, min(h.run_at) as oldest
        from (
            select q.run_at
            from trax.work_queue q
            where q.lane_id = l.lane_id
                and q.waits_for is null
            order by q.priority desc, q.job_id
            limit s.probed
        ) h
    ) p
    cross join lateral (
        with recursive level as (
            (
                select q.priority
                from trax.work_queue q
                where q.lane_id = l.lane_id
                    and q.waits_for is null
                order by q.priority desc
                limit 1
            )
            union all
            select (
                select q.priority
                from trax.work_queue q
                where q.lane_id = l.lane_id
                    and q.waits_for is null
                    and q.priority < v.priority
                order by q.priority desc
                limit 1
            )
            from level v
            where v.priority is not null
        )
        select min(h.run_at) as oldest
        from level v
        cross join lateral (
            -- An equal priority would let the planner walk the primary key past all other lanes.
            select q.run_at, q.priority
            from trax.work_queue q
            where q.lane_id = l.lane_id
                and q.waits_for is null
                and q.priority <= v.priority
            order by q.priority desc, q.job_id
            limit 20
        ) h
        where h.priority = v.priority
    ) f
    where s.percent < 100
), shown as (
    select l.lane_id, l.group_name
    from lane l
    union
    select d.lane_id, d.group_name
    from sampled d
    union
    -- Groups without waiting jobs report 0 jobs, rather than no value, while another table names
    -- them.
    select null, g.name
    from trax.manifest_group g
    union
    select null, m.group_name
    from trax.manifest m
    union
    select null, e.group_name
    from trax.lease e
    union
    select null, d.group_name
    from trax.dead_letter d
    where d.status = 'awaiting_intervention'
)
select
    l.group_name,
    k.state,
    round(sum(case when p.exact then p.jobs else greatest(p.jobs, d.jobs, 0) end)),
    min(least(p.oldest, d.oldest))
from shown l
cross join (values ('ready'), ('delayed'), ('blocked'), ('behind_manifest'), ('suspended')) k (state)
left join sampled d on d.lane_id = l.lane_id and d.state = k.state
left join probed p on p.lane_id = l.lane_id and p.state = k.state
group by 1, 2
$$;
comment on function trax.queue_depth() is
    'Internal. Returns how many jobs wait in each group, and since when: counted in a queue of up to 1,000 pages, estimated within about ten percent in a larger one.';

create function trax.metrics()
returns table (
    name text,
    labels jsonb,
    value double precision
)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
with clock as materialized (
    select clock_timestamp() as now
), hot (relation) as (
    values ('work_queue'), ('lease'), ('manifest_state')
), waiting as materialized (
    select * from trax.queue_depth()
), executed as materialized (
    select
        l.group_name,
        count(*) as jobs,
        count(*) filter (where l.cancel_requested) as stopping,
        count(*) filter (where l.lease_expires_at < c.now) as expired,
        min(l.started_at) as oldest,
        min(greatest(least(l.lease_expires_at, case when not (l.ahead or l.timed_out) then l.timeout_at end), l.reap_at)) as due_at
    from clock c
    cross join trax.lease l
    group by 1
), overdue as materialized (
    -- The cycle should have looked at these.
    select min(o.at) as since
    from clock c
    cross join lateral (
        select (select s.next_run_at from trax.manifest_state s where s.next_run_at is not null order by s.next_run_at limit 1)
        union all
        select (select q.run_at from trax.work_queue q where q.waits_for = 'time' order by q.run_at limit 1)
        union all
        select (select min(e.due_at) from executed e)
    ) o (at)
    where o.at < c.now
), place as materialized (
    -- Roles choose the names: a hundred groups have their own series, those with the most jobs
    -- first; the others share one.
    select p.group_name, case when p.place <= 100 then p.group_name else '(others)' end as label
    from (
        select g.group_name, row_number() over (order by sum(g.jobs) desc, g.group_name) as place
        from (
            select w.group_name, w.jobs
            from waiting w
            union all
            select x.group_name, x.jobs
            from executed x
        ) g
        group by 1
    ) p
)
select 'trax_schedules_stopped', '{}'::jsonb, count(*)::double precision
from (select from trax.stopped_schedule limit 100000) t
union all
-- Roles choose the names: only the hundred that have been stopped longest.
select 'trax_schedule_stopped_seconds', jsonb_build_object('name', t.manifest), greatest(extract(epoch from c.now - t.stopped_at), 0)
from clock c
cross join (
    select t.manifest, t.stopped_at
    from trax.stopped_schedule t
    order by t.stopped_at, t.dead_letter_id
    limit 100
) t
union all
select t.name, t.labels, t.value
from trax.tallies() t
union all
select 'trax_info', jsonb_build_object('version', e.extversion), 1
from pg_extension e
where e.extname = 'trax'
union all
select 'trax_queue_depth', jsonb_build_object('group', p.label, 'state', w.state), sum(w.jobs)
from waiting w
join place p on p.group_name = w.group_name
group by p.label, w.state
union all
select 'trax_queue_oldest_age_seconds', jsonb_build_object('group', p.label), greatest(extract(epoch from min(c.now) - min(w.oldest)), 0)
from clock c
cross join waiting w
join place p on p.group_name = w.group_name
where w.state = 'ready'
    and isfinite(w.oldest)
group by p.label
union all
select 'trax_leases', jsonb_build_object('group', p.label), coalesce(sum(x.jobs), 0)
from place p
left join executed x on x.group_name = p.group_name
group by p.label
union all
select 'trax_lease_oldest_age_seconds', jsonb_build_object('group', p.label), greatest(extract(epoch from min(c.now) - min(x.oldest)), 0)
from clock c
cross join executed x
join place p on p.group_name = x.group_name
where isfinite(x.oldest)
group by p.label
union all
select 'trax_leases_cancel_requested', '{}', coalesce(sum(x.stopping), 0)
from executed x
union all
select 'trax_leases_expired', '{}', coalesce(sum(x.expired), 0)
from executed x
union all
select 'trax_group_enabled', jsonb_build_object('group', g.name), g.enabled::int
from trax.manifest_group g
join place p on p.label = g.name
union all
select 'trax_group_max_active_jobs', jsonb_build_object('group', g.name), g.max_active_jobs
from trax.manifest_group g
join place p on p.label = g.name
where g.max_active_jobs is not null
union all
select 'trax_max_active_jobs', '{}', m.jobs::int
from current_setting('trax.max_active_jobs', true) m (jobs)
where m.jobs <> '0'
union all
-- All ids of the sequence, also those of jobs that were rolled back or refused.
select 'trax_enqueued_total', '{}', (q.last_value & ((1::bigint << 43) - 1)) - 1 + q.is_called::int
from trax.work_queue_job_id_seq q
union all
-- Roles choose the names: only the hundred with the most waiting sessions.
select n.name, jsonb_build_object('name', l.name), n.value
from (
    select l.name, l.held, l.waiting
    from trax.concurrency_limit l
    order by l.waiting desc, l.held desc, l.name
    limit 100
) l
cross join lateral (values ('trax_tokens_held', l.held), ('trax_tokens_waiting', l.waiting)) n (name, value)
union all
select n.name, jsonb_build_object('rate', r.name), n.value
from (
    select r.name, r.available, r.closed_until, r.waiting
    from trax.rate_state r
    order by r.waiting desc, r.name
    limit 100
) r
cross join lateral (
    values
        ('trax_rate_available', r.available),
        ('trax_rate_closed', (r.closed_until is not null)::int),
        ('trax_rate_waiting', r.waiting)
) n (name, value)
-- A standby does not know how much a rate allows now.
where n.value is not null
union all
select n.name, n.labels, n.value
from (
    select
        count(*) filter (where s.state = 'working') as working,
        count(*) filter (where s.state = 'idle') as idle,
        count(*) filter (where s.state = 'stopping') as stopping,
        count(*) filter (where s.state = 'gone') as gone
    from trax.worker_state s
) s
cross join lateral (
    values
        ('trax_workers', '{}'::jsonb, s.working + s.idle + s.stopping),
        ('trax_workers_by_state', '{"state": "working"}', s.working),
        ('trax_workers_by_state', '{"state": "idle"}', s.idle),
        ('trax_workers_by_state', '{"state": "stopping"}', s.stopping),
        ('trax_workers_by_state', '{"state": "gone"}', s.gone)
) n (name, labels, value)
union all
select 'trax_workers_busy', '{}', count(distinct l.worker)
from trax.lease l
union all
select 'trax_scheduler_running', '{}', count(*)
from pg_stat_activity a
where a.backend_type = 'trax scheduler'
    and a.datname = current_database()
union all
select 'trax_scheduler_paused', '{}', count(*)
from trax.instance i
where i.paused_at is not null
union all
select 'trax_scheduler_lag_seconds', '{}', coalesce(extract(epoch from c.now - o.since), 0)
from clock c
cross join overdue o
union all
select 'trax_manifests', '{}', case when m.counted < 10000 then m.counted else greatest(m.counted, m.estimated) end
from (
    select
        (select count(*) from (select from trax.manifest limit 10000) m) as counted,
        (select r.reltuples from pg_class r where r.oid = 'trax.manifest'::regclass) as estimated
) m
union all
select 'trax_manifests_overdue', '{}', count(*)
from (
    select
    from clock c
    join trax.manifest_state s on s.next_run_at < c.now
    limit 10000
) s
union all
select 'trax_manifests_broken', '{}', count(*)
from trax.manifest_state s
where s.evaluation_error is not null
union all
select 'trax_dead_letters', '{}', count(*)
from (
    select
    from trax.dead_letter d
    where d.status = 'awaiting_intervention'
    limit 100000
) d
union all
select 'trax_table_dead_tuples', jsonb_build_object('table', h.relation), t.n_dead_tup
from hot h
join pg_stat_all_tables t on t.relid = ('trax.' || h.relation)::regclass
union all
select 'trax_table_bytes', jsonb_build_object('table', h.relation), pg_total_relation_size(('trax.' || h.relation)::regclass)
from hot h
union all
select 'trax_table_bytes', '{"table": "run"}', coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)
from pg_inherits i
where i.inhparent = 'trax.run'::regclass
union all
select 'trax_run_default_used', '{}', (exists (select from trax.run_default))::int
union all
select 'trax_horizon_age_transactions', '{}', coalesce(max(h.age), 0)
from (
    select age(a.backend_xmin)
    from pg_stat_activity a
    where a.backend_xmin is not null
        and (a.datname = current_database() or a.backend_type = 'walsender')
        and a.pid <> pg_backend_pid()
    union all
    select age(p.transaction)
    from pg_prepared_xacts p
    where p.database = current_database()
    union all
    select age(s.xmin)
    from pg_replication_slots s
    where s.xmin is not null
) h (age)
union all
select 'trax_oldest_transaction_seconds', '{}', coalesce(extract(epoch from max(c.now - a.xact_start)), 0)
from clock c
cross join pg_stat_activity a
where a.datname = current_database()
    and (a.backend_xmin is not null or a.backend_xid is not null)
    and a.pid <> pg_backend_pid()
union all
select 'trax_wraparound_age_transactions', '{}', age(d.datfrozenxid)
from pg_database d
where d.datname = current_database()
$$;
comment on function trax.metrics() is
    'Returns samples for monitoring, named and labelled as Prometheus does; names that end in _total and buckets of histograms count since the server started.';
