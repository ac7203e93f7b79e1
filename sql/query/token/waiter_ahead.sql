-- Who stands next before a place in the queue of a name. $1 name, $2 waiter
select w.waiter_id
from trax.concurrency_waiter w
where w.name = $1
    and w.waiter_id < $2
order by w.waiter_id desc
limit 1
