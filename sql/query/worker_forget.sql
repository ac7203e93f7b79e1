-- Forgets workers that were last seen before $1 and execute nothing.
delete from trax.worker w
where w.last_seen_at < $1
    and not exists (
        select
        from trax.lease l
        where l.worker = w.name
    )
