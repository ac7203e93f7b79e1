-- Every group that has settings, jobs or manifests, with what waits and runs. $1 count up to.
--
-- What is ready is counted lane by lane and not beyond $1: nothing here reads a queue of millions.
select
    n.name,
    coalesce(g.enabled, true) as enabled,
    coalesce(g.priority, 0::smallint) as priority,
    g.max_active_jobs,
    coalesce(g.max_per_key, 1) as max_per_key,
    (
        select count(*)
        from trax.manifest m
        where m.group_name = n.name
    ) as manifests,
    least(
        (
            select coalesce(sum(w.count), 0)
            from (
                select distinct l.lane_id
                from trax.lane l
                where l.group_name = n.name
            ) l
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
        ),
        $1
    )::bigint as ready,
    (
        select count(*)
        from trax.lease l
        where l.group_name = n.name
    ) as running
from (
    select g.name
    from trax.manifest_group g
    union
    select l.group_name
    from trax.lane l
    union
    select m.group_name
    from trax.manifest m
) n
left join trax.manifest_group g on g.name = n.name
order by n.name
