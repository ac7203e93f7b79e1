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
    (
        -- The oldest of the next jobs: among jobs of equal priority the first is the oldest.
        select min(h.run_at)
        from pg_catalog.unnest(b.lanes[:100]) l (lane_id)
        cross join lateral (
            select q.run_at
            from trax.work_queue q
            where q.lane_id = l.lane_id
                and q.waits_for is null
            order by q.priority desc, q.job_id
            limit 100
        ) h
    ) as oldest
from size s
cross join busiest b
left join trax.manifest_group g on g.name = b.name
order by b.waiting + b.running desc, b.name
