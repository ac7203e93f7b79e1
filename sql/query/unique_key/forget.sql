-- Deletes unique keys whose job has ended and whose period is over, the longest over first.
delete from trax.unique_key k
where k.ctid = any (array(
    select o.ctid
    from trax.unique_key o
    where o.ended
        and o.alive_until <= $now
    order by o.alive_until
    limit $at_most
    for update skip locked
))
