-- Locks the lease of a job that goes back to the queue, unless it is asked to stop.
select true
from trax.lease l
where l.job_id = $job_id
    and l.token = $token
    and not l.cancel_requested
for update
