-- Corrects jobs that are ready or blocked and due later: those queued before the jump wait for
-- their time again, and those queued by the clock that was ahead are due now, as are suspended
-- ones, whose time is that of their suspension.
update trax.work_queue q
set waits_for = case
        when q.queued_at <= $latest and coalesce(q.waits_for not in ('signal', 'jobs'), true) then 'time'
        else q.waits_for
    end,
    run_at = case
        when q.queued_at <= $latest and coalesce(q.waits_for not in ('signal', 'jobs'), true) then q.run_at
        else $now
    end,
    queued_at = least(q.queued_at, $now)
where q.job_id = any (array(
    select o.job_id
    from trax.work_queue o
    where o.waits_for is distinct from 'time'
        and o.run_at > $latest
    for update skip locked
))
