-- Tells those who wait for a name the limit of the last call. $1 name, $2 limit
update trax.concurrency_waiter w
set max_holders = $2
where w.ctid = any (array(
    select o.ctid
    from trax.concurrency_waiter o
    where o.name = $1
        and o.max_holders <> $2
    for update skip locked
))
