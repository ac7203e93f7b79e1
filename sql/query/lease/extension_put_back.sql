-- Forgets heartbeats beside leases that came by a clock ahead of now.
delete from trax.lease_extension e
where e.extended_at > $latest
    and e.extended_at - $latest > e.lease_expires_at - e.extended_at
