-- Counts the leases of groups towards their new limits; locks the leases in the order of outcomes.
update trax.lease l
set limited = true
from (
    select o.job_id
    from trax.lease o
    where o.group_name = any ($groups)
        and not o.limited
    order by o.job_id
    for update
) k
where l.job_id = k.job_id
