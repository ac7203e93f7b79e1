-- All waiters. $1 at most
select w.waiter_id
from trax.concurrency_waiter w
order by w.waiter_id
limit $1
