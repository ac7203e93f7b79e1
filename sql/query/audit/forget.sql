-- Deletes old records.
delete from trax.audit a
where a.ctid = any (array(
    select o.ctid
    from trax.audit o
    where o.at < $before
    order by o.at
    limit $at_most
    for update skip locked
))
