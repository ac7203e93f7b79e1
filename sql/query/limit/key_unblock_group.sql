-- Lets all jobs of a group into their lanes that are behind a concurrency key; claims sort them out
-- again. One that is locked is being cancelled or let in.
update trax.work_queue q
set waits_for = null
-- Not by ctid: a row that was changed since the snapshot is locked as it is now, and found as it
-- was.
where q.job_id = any (array(
    select b.job_id
    from trax.work_queue b
    where b.waits_for = 'key'
        and b.group_name = $group
    order by b.job_id
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
