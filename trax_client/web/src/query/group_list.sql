-- Groups with work, settings or manifests, ordered by name. Ready jobs are counted by lane and only
-- up to $1. $1 count limit, $2 after this name, $3 limit.
with named as materialized (
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
    coalesce(r.count, 0) as running,
    coalesce(w.count, 0)::bigint as ready,
    w.oldest
from named n
left join trax.manifest_group g on g.name = n.name
left join running r on r.name = n.name
cross join lateral (
    select sum(c.count) as count, min(c.oldest) as oldest
    from trax.lane l
    cross join lateral (
        select count(*) as count, min(h.run_at) as oldest
        from (
            select q.run_at
            from trax.work_queue q
            where q.lane_id = l.lane_id
                and q.waits_for is null
            order by q.priority desc, q.job_id
            limit $1
        ) h
    ) c
    where l.group_name = n.name
) w
order by n.name
