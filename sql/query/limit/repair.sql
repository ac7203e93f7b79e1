-- Moves the first job of each lane into it, for each concurrency key or
-- manifest that has room. Reads $at_most lanes, those that follow $shared and $lane_id, one after
-- the other: a million jobs may wait behind one key. Returns the jobs, and with them or alone the
-- last place and the number of lanes read. `reason` is the waits_for of the jobs, a literal for the
-- sake of the plan; `shared` is a column; `allowed` is an expression.
with recursive place as (
    select {from} as {shared}, $lane_id as lane_id, 0 as number
    union all
    select n.{shared}, n.lane_id, p.number + 1
    from place p
    cross join lateral (
        select b.{shared}, b.lane_id
        from trax.work_queue b
        where b.waits_for = {reason}
            and (b.{shared}, b.lane_id) > (p.{shared}, p.lane_id)
        order by b.{shared}, b.lane_id
        limit 1
    ) n
    where p.number < $at_most
), roomy as (
    select f.job_id
    from place p
    cross join lateral (
        select b.job_id, b.group_name
        from trax.work_queue b
        where b.waits_for = {reason}
            and b.{shared} = p.{shared}
            and b.lane_id = p.lane_id
        order by b.priority desc, b.job_id
        limit 1
    ) f
    where p.number > 0
        and (
            select count(*)
            from trax.lease l
            where l.{shared} = p.{shared}
        ) < {allowed}
), let_in as (
    update trax.work_queue q
    set waits_for = null
    -- Not by ctid: a row that was changed since the snapshot is locked in its new version, but
    -- found by its old one.
    where q.job_id = any (array(
        select o.job_id
        from trax.work_queue o
        where o.job_id = any (array(select r.job_id from roomy r))
            and o.waits_for = {reason}
        for update skip locked
    ))
    returning q.lane_id, q.priority, q.job_id
)
select i.lane_id, i.priority, i.job_id, l.{shared} as reached, l.lane_id as reached_lane, l.number as looked_at
from (
    select p.{shared}, p.lane_id, p.number
    from place p
    where p.number > 0
    order by p.number desc
    limit 1
) l
left join let_in i on true
