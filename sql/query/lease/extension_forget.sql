-- Forgets heartbeats whose time is long over.
delete from trax.lease_extension e
where e.lease_expires_at < $before
