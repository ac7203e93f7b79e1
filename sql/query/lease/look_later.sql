-- Sets until when leases last and when the reaper looks at them again. Side by side: $1 jobs, $2
-- when they were extended, $3 until when they last, $4 when to look, $5 whether they have not
-- begun. $6 the default timeout, which counts from when it is known that one has begun
update trax.lease l
set extended_at = n.extended_at,
    lease_expires_at = n.lease_expires_at,
    reap_at = least(n.reap_at, case when l.ahead and not n.ahead then n.extended_at + coalesce(l.timeout, $6) end),
    timeout_at = case when l.ahead and not n.ahead then n.extended_at + coalesce(l.timeout, $6) else l.timeout_at end,
    ahead = n.ahead
from unnest($1, $2, $3, $4, $5) as n (job_id, extended_at, lease_expires_at, reap_at, ahead)
where l.job_id = n.job_id
