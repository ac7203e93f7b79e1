-- Lets all jobs of a group into their lanes that are behind a concurrency key; claims sort them out anew. One that is
-- locked is being cancelled or let in. $1 group
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select b.ctid
    from trax.work_queue b
    where b.waits_for = 'key'
        and b.group_name = $1
    order by b.job_id
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
