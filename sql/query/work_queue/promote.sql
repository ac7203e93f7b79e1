-- Makes delayed jobs claimable once their time has come.
update trax.work_queue q
set waits_for = null
-- Not by ctid: a row that was changed since the snapshot is locked in its new version, but found by
-- its old one.
where q.job_id = any (array(
    select d.job_id
    from trax.work_queue d
    where d.waits_for = 'time'
        and d.run_at <= $now
    order by d.run_at
    limit $at_most
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
