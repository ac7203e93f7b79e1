-- The shards of a router, in order.
select s.number, s.address, s.closed
from trax_router.shards() s
order by s.number
