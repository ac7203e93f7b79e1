-- Removes waiters, except those that another transaction is about to remove or change.
delete from trax.concurrency_waiter w
where w.ctid = any (array(
    select o.ctid
    from trax.concurrency_waiter o
    where o.waiter_id = any ($waiter_ids)
    for update skip locked
))
