-- Asks attempts that run too long to stop, and notes when, from $begin on; those that have not
-- begun run no time.
update trax.lease l
set cancel_requested = true, timed_out = true, timeout_at = $now
where l.ctid = any (array(
    select o.ctid
    from trax.lease o
    where o.reap_at <= $now
        and o.reap_at >= $begin
        and o.timeout_at <= $now
        and not o.timed_out
        and not o.ahead
    for update skip locked
))
