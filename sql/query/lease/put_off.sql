-- Postpones the reaper's look at overdue leases, the longer the longer they are overdue.
update trax.lease l
set reap_at = $now + least(greatest($now - least(l.lease_expires_at, l.timeout_at), interval '1 s'), interval '10 s')
where l.job_id = any ($job_ids)
