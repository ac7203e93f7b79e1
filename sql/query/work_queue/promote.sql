-- Makes waiting jobs claimable whose time has come. $1 now, $2 at most
update trax.work_queue q
set waits_for = null
-- Not by ctid: a row that was changed since the snapshot is locked as it is now, and found as it
-- was.
where q.job_id = any (array(
    select d.job_id
    from trax.work_queue d
    where d.waits_for = 'time'
        and d.run_at <= $1
    order by d.run_at
    limit $2
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
