-- Deletes workers that were last seen before $before and execute nothing.
delete from trax.worker w
where w.ctid = any (array(
    select o.ctid
    from trax.worker o
    where o.last_seen_at < $before
        and not exists (
            select
            from trax.lease l
            where l.worker = o.name
        )
    for update skip locked
))
