-- Returns the limit of the last call.
select w.max_holders
from trax.concurrency_waiter w
where w.waiter_id = $waiter_id
