-- Every group with settings, jobs or manifests, and its waiting and running jobs. $1 limit up to
-- which jobs are counted.
--
-- Each table is read once, however many groups exist. Ready jobs are counted by lane and only up to
-- $1, so that a queue of millions is never read.
with manifests as materialized (
    select m.group_name as name, count(*) as count
    from trax.manifest m
    group by m.group_name
),
running as materialized (
    select l.group_name as name, count(*) as count
    from trax.lease l
    group by l.group_name
),
ready as materialized (
    select l.group_name as name, sum(w.count) as count
    from trax.lane l
    cross join lateral (
        select count(*)
        from (
            select
            from trax.work_queue q
            where q.lane_id = l.lane_id
                and q.waits_for is null
            limit $1
        ) q
    ) w
    group by l.group_name
),
later as materialized (
    -- Adds groups that may have only jobs that are blocked or due later.
    select distinct w.group_name as name
    from (
        select q.group_name
        from trax.work_queue q
        where q.waits_for is not null
        limit $1
    ) w
)
select
    n.name,
    coalesce(g.enabled, true) as enabled,
    coalesce(g.priority, 0::smallint) as priority,
    g.max_active_jobs,
    coalesce(g.max_per_key, 1) as max_per_key,
    g.rate,
    g.max_waiting,
    coalesce(g.overflow, 'reject') as overflow,
    coalesce(m.count, 0) as manifests,
    least(coalesce(r.count, 0), $1)::bigint as ready,
    coalesce(u.count, 0) as running
from (
    select g.name
    from trax.manifest_group g
    union
    select r.name
    from ready r
    union
    select u.name
    from running u
    union
    select w.name
    from later w
    union
    select m.name
    from manifests m
) n
left join trax.manifest_group g on g.name = n.name
left join manifests m on m.name = n.name
left join ready r on r.name = n.name
left join running u on u.name = n.name
order by n.name
