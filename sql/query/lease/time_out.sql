-- Asks attempts that run too long to stop, and notes when; those that have not begun run no time.
-- $1 now, $2 where to begin
update trax.lease l
set cancel_requested = true, timed_out = true, timeout_at = $1
where l.ctid = any (array(
    select o.ctid
    from trax.lease o
    where o.reap_at <= $1
        and o.reap_at >= $2
        and o.timeout_at <= $1
        and not o.timed_out
        and not o.ahead
    for update skip locked
))
