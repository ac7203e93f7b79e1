-- The limit that the last call gave. $1 waiter
select w.max_holders
from trax.concurrency_waiter w
where w.waiter_id = $1
