-- Returns all waiters.
select w.waiter_id
from trax.concurrency_waiter w
order by w.waiter_id
limit $at_most
