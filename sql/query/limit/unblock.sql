-- Lets the next jobs behind a concurrency key, or behind a manifest, into their lanes, up to
-- $at_most of each lane. The lanes that have such jobs are found one after the other: there may be
-- ten thousand that have none. The reason is what jobs wait for, a literal for the sake of the
-- plan; what they share is a column.
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
-- Not by ctid: a row that was changed since the snapshot is locked as it is now, and found as it
-- was.
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
