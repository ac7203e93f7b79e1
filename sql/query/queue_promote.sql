-- Makes waiting jobs claimable whose time has come. $1 now, $2 at most
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select d.ctid
    from trax.work_queue d
    where d.waits_for = 'time'
        and d.run_at <= $1
    order by d.run_at
    limit $2
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
