-- Forgets heartbeats whose time is long over. $1 before
delete from trax.lease_extension e
where e.lease_expires_at < $1
