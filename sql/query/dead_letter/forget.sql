-- Deletes resolved dead letters of long ago. $1 resolved before, $2 at most
delete from trax.dead_letter d
where d.ctid = any (array(
    select o.ctid
    from trax.dead_letter o
    where o.resolved_at < $1
    order by o.resolved_at
    limit $2
    for update skip locked
))
