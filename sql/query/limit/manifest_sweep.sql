-- The net under the outcomes: of each manifest that has room the first job of each lane goes into
-- it. Looks at $at_most lanes of manifests, those that follow ($manifest_id, $lane_id), one after
-- the other: behind one manifest a million jobs may wait. Gives the jobs, and beside them or alone
-- where it stopped and at how many it looked.
with recursive place as (
    select $manifest_id as manifest_id, $lane_id as lane_id, 0 as number
    union all
    select n.manifest_id, n.lane_id, p.number + 1
    from place p
    cross join lateral (
        select b.manifest_id, b.lane_id
        from trax.work_queue b
        where b.waits_for = 'manifest'
            and (b.manifest_id, b.lane_id) > (p.manifest_id, p.lane_id)
        order by b.manifest_id, b.lane_id
        limit 1
    ) n
    where p.number < $at_most
), roomy as (
    select f.job_id
    from place p
    cross join lateral (
        select b.job_id
        from trax.work_queue b
        where b.waits_for = 'manifest'
            and b.manifest_id = p.manifest_id
            and b.lane_id = p.lane_id
        order by b.priority desc, b.job_id
        limit 1
    ) f
    where p.number > 0
        and (
            select count(*)
            from trax.lease l
            where l.manifest_id = p.manifest_id
        ) < coalesce((select m.max_concurrency from trax.manifest m where m.manifest_id = p.manifest_id), 2147483647)
), let_in as (
    update trax.work_queue q
    set waits_for = null
    -- Not by ctid: a row that was changed since the snapshot is locked as it is now, and found as
    -- it was.
    where q.job_id = any (array(
        select o.job_id
        from trax.work_queue o
        where o.job_id = any (array(select r.job_id from roomy r))
            and o.waits_for = 'manifest'
        for update skip locked
    ))
    returning q.lane_id, q.priority, q.job_id
)
select i.lane_id, i.priority, i.job_id, l.manifest_id as reached, l.lane_id as reached_lane, l.number as looked_at
from (
    select p.manifest_id, p.lane_id, p.number
    from place p
    where p.number > 0
    order by p.number desc
    limit 1
) l
left join let_in i on true
