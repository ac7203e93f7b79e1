-- Sets the end of leases, and until when the reaper leaves them alone; all but the default timeout
-- are parallel arrays. $ahead is whether the job has not begun; its timeout counts from when its
-- begin is known.
update trax.lease l
set extended_at = n.extended_at,
    lease_expires_at = n.lease_expires_at,
    reap_at = n.reap_at,
    timeout_at = case
        when l.ahead and not n.ahead then n.extended_at + coalesce(l.timeout, $default_timeout)
        else l.timeout_at
    end,
    ahead = n.ahead
from unnest($job_ids, $extended_at, $lease_expires_at, $reap_at, $ahead)
    as n (job_id, extended_at, lease_expires_at, reap_at, ahead)
where l.job_id = n.job_id
