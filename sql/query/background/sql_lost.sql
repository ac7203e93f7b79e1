-- Ends the leases of executors that are gone; jobs and tokens are parallel arrays.
update trax.lease l
set extended_at = $now, lease_expires_at = $now
from unnest($job_ids, $tokens) as o (job_id, token)
where l.job_id = o.job_id
    and l.token = o.token
    and l.lease_expires_at > $now
