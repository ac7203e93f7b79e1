-- Returns the queue of a name.
select w.waiter_id
from trax.concurrency_waiter w
where w.name = $name
order by w.waiter_id
