-- Puts tokens that were granted or extended by a clock that was ahead back to one length from now.
update trax.concurrency_token t
set acquired_at = least(t.acquired_at, $now),
    extended_at = $now,
    expires_at = $now + greatest(t.expires_at - t.extended_at, interval '0')
where t.ctid = any (array(
    select e.ctid
    from trax.concurrency_token e
    where e.extended_at > $latest
        and isfinite(e.extended_at)
        and isfinite(e.expires_at)
    for update skip locked
))
returning t.name
