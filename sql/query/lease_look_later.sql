-- Sets until when leases last and when the reaper looks at them again. Side by side: $1 jobs, $2 when they were extended,
-- $3 until when they last, $4 when to look
update trax.lease l
set extended_at = n.extended_at,
    lease_expires_at = n.lease_expires_at,
    reap_at = n.reap_at
from unnest($1, $2, $3, $4) as n (job_id, extended_at, lease_expires_at, reap_at)
where l.job_id = n.job_id
