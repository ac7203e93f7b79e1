-- Lets the next jobs behind a concurrency key, or behind a manifest, into their lanes, up to
-- $at_most of each lane. The lanes that have such jobs are searched one after the other: ten
-- thousand others may have none. `reason` is the waits_for of the jobs, a literal for the sake of
-- the plan; `shared` is a column.
with recursive blocked_lane as (
    (
        select b.lane_id
        from trax.work_queue b
        where b.waits_for = {reason}
            and b.{shared} = $shared
        order by b.lane_id
        limit 1
    )
    union all
    select (
        select b.lane_id
        from trax.work_queue b
        where b.waits_for = {reason}
            and b.{shared} = $shared
            and b.lane_id > l.lane_id
        order by b.lane_id
        limit 1
    )
    from blocked_lane l
    where l.lane_id is not null
)
update trax.work_queue q
set waits_for = null
-- Not by ctid: a row that was changed since the snapshot is locked in its new version, but found by
-- its old one.
where q.job_id = any (array(
    select n.job_id
    from blocked_lane l
    cross join lateral (
        select b.job_id
        from trax.work_queue b
        where b.waits_for = {reason}
            and b.{shared} = $shared
            and b.lane_id = l.lane_id
        order by b.priority desc, b.job_id
        limit $at_most
        for update skip locked
    ) n
))
returning q.lane_id, q.priority, q.job_id
