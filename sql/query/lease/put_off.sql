-- Has the reaper look later at overdue leases; the longer they are overdue the later. $1 jobs, $2
-- now
update trax.lease l
set reap_at = $2 + least(greatest($2 - least(l.lease_expires_at, l.timeout_at), interval '1 s'), interval '10 s')
where l.job_id = any ($1)
