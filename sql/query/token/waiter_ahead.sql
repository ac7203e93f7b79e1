-- Returns the waiter next before a place in the queue of a name.
select w.waiter_id
from trax.concurrency_waiter w
where w.name = $name
    and w.waiter_id < $waiter_id
order by w.waiter_id desc
limit 1
