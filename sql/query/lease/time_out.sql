-- Asks attempts that run too long to stop, and records when; the timeout of an attempt that has not
-- begun does not count.
update trax.lease l
set cancel_requested = true, timed_out = true, timeout_at = $now
where l.ctid = any (array(
    select o.ctid
    from trax.lease o
    where o.job_id = any ($job_ids)
        and o.timeout_at <= $now
        and not o.timed_out
        and not o.ahead
    for update skip locked
))
