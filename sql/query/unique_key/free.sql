-- Deletes the given unique keys whose job has ended and whose period is over, in an order that
-- concurrent transactions share.
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
