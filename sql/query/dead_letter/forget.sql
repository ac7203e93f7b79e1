-- Deletes old resolved dead letters.
delete from trax.dead_letter d
where d.ctid = any (array(
    select o.ctid
    from trax.dead_letter o
    where o.resolved_at < $resolved_before
    order by o.resolved_at
    limit $at_most
    for update skip locked
))
