-- Counts the waiting jobs of a rate that cost more than its burst.
select count(*) as count, max(q.cost) as highest
from trax.work_queue q
where q.rate = $name
    and q.cost > $burst
having count(*) > 0
