-- Joins the queue of a name.
insert into trax.concurrency_waiter (name, max_holders, holder, pid, waiting_since)
values ($name, $max_holders, $holder, $pid, $now)
returning waiter_id
