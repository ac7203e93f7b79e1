-- Lets all jobs of a group that wait behind a concurrency key into their lanes; claims block them
-- again where needed. A locked job is being cancelled or let in.
update trax.work_queue q
set waits_for = null
-- Not by ctid: a row that was changed since the snapshot is locked in its new version, but found by
-- its old one.
where q.job_id = any (array(
    select b.job_id
    from trax.work_queue b
    where b.waits_for = 'key'
        and b.group_name = $group
    order by b.job_id
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
