-- Asks the workers of jobs to stop; locks in the order of outcomes. $1 jobs
update trax.lease l
set cancel_requested = true, cancelled = true
from (
    select o.job_id
    from trax.lease o
    where o.job_id = any ($1)
    order by o.job_id
    for update
) k
where l.job_id = k.job_id
