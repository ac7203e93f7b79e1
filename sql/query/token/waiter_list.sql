-- The queue of a name. $1 name
select w.waiter_id
from trax.concurrency_waiter w
where w.name = $1
order by w.waiter_id
