-- Joins the queue of a name. $1 name, $2 limit, $3 holder, $4 process, $5 now
insert into trax.concurrency_waiter (name, max_holders, holder, pid, waiting_since)
values ($1, $2, $3, $4, $5)
returning waiter_id
