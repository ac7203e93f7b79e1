-- Stores the limit of the last call for the waiters of a name.
update trax.concurrency_waiter w
set max_holders = $max_holders
where w.ctid = any (array(
    select o.ctid
    from trax.concurrency_waiter o
    where o.name = $name
        and o.max_holders <> $max_holders
    for update skip locked
))
