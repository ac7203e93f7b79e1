-- The groups with the most waiting and running jobs, busiest first. A queue of more than 1,000
-- pages is sampled with that many pages. $1 limit.
with size as materialized (
    select
        least(
            100,
            100.0 * 1000 * pg_catalog.current_setting('block_size')::bigint
                / greatest(pg_catalog.pg_relation_size('trax.work_queue'), 1)
        )::real as percent
),
waiting as materialized (
    select
        q.group_name as name,
        count(*) * (100 / min(s.percent)) as jobs,
        array_agg(distinct q.lane_id) filter (where q.waits_for is null) as lanes
    from size s
    cross join lateral (
        select w.group_name, w.lane_id, w.waits_for
        from trax.work_queue w tablesample system (s.percent)
    ) q
    group by q.group_name
),
running as materialized (
    select l.group_name as name, count(*) as jobs
    from trax.lease l
    group by l.group_name
),
busiest as materialized (
    select
        coalesce(w.name, r.name) as name,
        coalesce(w.jobs, 0) as waiting,
        coalesce(r.jobs, 0) as running,
        w.lanes
    from waiting w
    full join running r on r.name = w.name
    order by coalesce(w.jobs, 0) + coalesce(r.jobs, 0) desc, 1
    limit $1
)
select
    b.name,
    pg_catalog.round(b.waiting)::bigint as waiting,
    b.running,
    s.percent < 100 as estimated,
    coalesce(g.enabled, true) as enabled,
    g.max_active_jobs,
    o.oldest,
    coalesce(o.is_late or pg_catalog.cardinality(b.lanes) > 100, false) as oldest_is_late
from size s
cross join busiest b
left join trax.manifest_group g on g.name = b.name
cross join lateral (
    -- The first jobs of each priority of each lane. A job was queued after those before it; so the
    -- oldest is among the first hundred, unless all of these became ready later than they were
    -- queued.
    select min(p.oldest) as oldest, bool_or(p.is_late) as is_late
    from pg_catalog.unnest(b.lanes[:100]) l (lane_id)
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
        select f.oldest, f.is_full and f.oldest > f.queued_at as is_late
        from level v
        cross join lateral (
            select min(h.run_at) as oldest, max(h.queued_at) as queued_at, count(*) = 100 as is_full
            from (
                -- An equal priority would let the planner walk the primary key past other lanes.
                select q.run_at, q.queued_at, q.priority
                from trax.work_queue q
                where q.lane_id = l.lane_id
                    and q.waits_for is null
                    and q.priority <= v.priority
                order by q.priority desc, q.job_id
                limit 100
            ) h
            where h.priority = v.priority
        ) f
    ) p
) o
order by b.waiting + b.running desc, b.name
