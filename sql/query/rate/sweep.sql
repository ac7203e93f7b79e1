-- Removes closures that are over.
delete from trax.rate_closure c
where c.ctid = any (array(
        select o.ctid
        from trax.rate_closure o
        where o.closed_until < $over_by
        limit $at_most
        for update skip locked
    ))
