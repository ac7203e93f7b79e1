-- Asks the workers of jobs to stop; locks in the order of outcomes.
update trax.lease l
set cancel_requested = true, cancelled = true
from (
    select o.job_id
    from trax.lease o
    where o.job_id = any ($job_ids)
    order by o.job_id
    for update
) k
where l.job_id = k.job_id
returning l.job_id
