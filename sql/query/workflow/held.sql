-- Returns whether $token holds the lease of a job that is not asked to stop, and keeps it from
-- being asked until this transaction ends.
select true
from trax.lease l
where l.job_id = $job_id
    and l.token = $token
    and not l.cancel_requested
for share
