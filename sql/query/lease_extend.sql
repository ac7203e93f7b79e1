-- Extends leases that are still held. $1 jobs in ascending order, $2 tokens beside them, $3 new expiry
update trax.lease l
set lease_expires_at = greatest(l.lease_expires_at, $3)
from unnest($1, $2) as h (job_id, token)
where l.job_id = h.job_id
    and l.token = h.token
returning l.job_id, l.token, l.cancel_requested, l.lease_expires_at
