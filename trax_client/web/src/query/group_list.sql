-- Groups with work, settings or manifests, ordered by name. Ready jobs are counted by lane and only
-- up to $1. A group whose jobs are all suspended or due later is found among the first $4 of these.
-- $1 count limit, $2 after this name, $3 limit, $4 count limit of suspended jobs in all groups.
with suspended as materialized (
    select q.group_name as name, count(*) as count, sum(count(*)) over () = $4 as is_cut
    from (
        select w.group_name
        from trax.work_queue w
        where w.waits_for in ('signal', 'jobs')
        limit $4
    ) q
    group by q.group_name
),
named as materialized (
    select n.name
    from (
        select g.name
        from trax.manifest_group g
        union
        select m.group_name
        from trax.manifest m
        union
        select l.group_name
        from trax.lane l
        union
        select l.group_name
        from trax.lease l
        union
        select s.name
        from suspended s
        union
        select d.group_name
        from (
            select w.group_name
            from trax.work_queue w
            where w.waits_for = 'time'
            limit $4
        ) d
    ) n
    where $2::text is null or n.name > $2
    order by n.name
    limit $3
),
running as materialized (
    select l.group_name as name, count(*) as count
    from trax.lease l
    group by l.group_name
)
select
    n.name,
    coalesce(g.enabled, true) as enabled,
    coalesce(g.priority, 0::smallint) as priority,
    g.max_active_jobs,
    coalesce(g.max_per_key, 1) as max_per_key,
    g.max_waiting,
    coalesce(g.overflow, 'reject') as overflow,
    coalesce(r.count, 0) as running,
    coalesce(w.count, 0)::bigint as ready,
    coalesce(w.is_cut, false) as ready_is_cut,
    coalesce(u.count, 0) as suspended,
    coalesce((select pg_catalog.bool_or(c.is_cut) from suspended c), false) as suspended_is_cut,
    o.oldest,
    coalesce(o.is_late, false) as oldest_is_late
from named n
left join trax.manifest_group g on g.name = n.name
left join running r on r.name = n.name
left join suspended u on u.name = n.name
cross join lateral (
    select sum(c.count) as count, bool_or(c.count = $1) as is_cut
    from trax.lane l
    cross join lateral (
        select count(*) as count
        from (
            select
            from trax.work_queue q
            where q.lane_id = l.lane_id
                and q.waits_for is null
            limit $1
        ) h
    ) c
    where l.group_name = n.name
) w
cross join lateral (
    -- As in busiest.sql.
    select min(p.oldest) as oldest, bool_or(p.is_late) as is_late
    from trax.lane l
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
    where l.group_name = n.name
) o
order by n.name
