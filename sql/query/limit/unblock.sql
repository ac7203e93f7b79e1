-- Lets the next jobs behind a concurrency key, or behind a manifest, into their lanes, up to
-- $at_most of each lane. Returns them, and the first job of each lane that has such jobs, of which
-- all are locked. The lanes that have such jobs are searched one after the other: ten
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
), unblocked as (
    update trax.work_queue q
    set waits_for = null
    -- Not by ctid: a row that was changed since the snapshot is locked in its new version, but
    -- found by its old one.
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
)
select u.lane_id, u.priority, u.job_id, true as is_unblocked
from unblocked u
union all
select n.lane_id, n.priority, n.job_id, false
from blocked_lane l
cross join lateral (
    select b.lane_id, b.priority, b.job_id
    from trax.work_queue b
    where b.waits_for = {reason}
        and b.{shared} = $shared
        and b.lane_id = l.lane_id
    order by b.priority desc, b.job_id
    limit 1
) n
where l.lane_id not in (select u.lane_id from unblocked u)
