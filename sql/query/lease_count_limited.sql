-- Counts the leases of a group towards the limit it has from now on; locks them in the order of outcomes. $1 group
update trax.lease l
set limited = true
from (
    select o.job_id
    from trax.lease o
    where o.group_name = $1
        and not o.limited
    order by o.job_id
    for update
) k
where l.job_id = k.job_id
