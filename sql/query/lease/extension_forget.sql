-- Deletes recorded heartbeats that expired long ago.
delete from trax.lease_extension e
where e.lease_expires_at < $before
