-- Deletes recorded heartbeats from a clock that was ahead.
delete from trax.lease_extension e
where e.extended_at > $latest
    and e.extended_at - $latest > e.lease_expires_at - e.extended_at
