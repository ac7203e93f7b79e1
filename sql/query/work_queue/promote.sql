-- Makes jobs claimable whose time has come: delayed ones, and suspended ones whose wait is over.
update trax.work_queue q
set waits_for = null,
    wait_until = null,
    run_at = case when q.waits_for = 'time' then q.run_at else greatest(q.run_at, q.wait_until) end
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
) || array(
    select d.job_id
    from trax.work_queue d
    where d.wait_until is not null
        and d.wait_until <= $now
    order by d.wait_until
    limit $at_most
    for update skip locked
))
returning q.lane_id, q.priority, q.job_id
