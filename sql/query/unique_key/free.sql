-- Forgets those of some unique keys whose job has ended and whose time is over, in an order that
-- two transactions share.
delete from trax.unique_key k
where k.key = any (array(
        select o.key
        from trax.unique_key o
        where o.key = any ($keys)
            and o.ended
            and o.alive_until <= $now
        order by o.key
        for update
    ))
    and k.ended
    and k.alive_until <= $now
