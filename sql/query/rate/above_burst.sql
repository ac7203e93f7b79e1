-- Counts the waiting jobs of a rate that cost more than its burst, up to a limit.
select count(*) as count, max(a.cost) as highest
from (
    select q.cost
    from trax.work_queue q
    where q.rate = $name
        and q.cost > $burst
    order by q.cost desc
    limit $at_most
) a
having count(*) > 0
