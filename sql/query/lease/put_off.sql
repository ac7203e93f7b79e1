-- Has the reaper look later at overdue leases; the longer they are overdue the later.
update trax.lease l
set reap_at = $now + least(greatest($now - least(l.lease_expires_at, l.timeout_at), interval '1 s'), interval '10 s')
where l.job_id = any ($job_ids)
