-- Counts the rows for one target, and those without a target yet.
select
    w.waiting operator(pg_catalog.+) u.unplaced,
    coalesce(
        pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) least(w.since, u.since)),
        0
    ),
    (
        select pg_catalog.count(*)
        from (select from trax_outbox.refused x where x.target operator(pg_catalog.=) $1::uuid limit 100000) r
    ),
    u.unplaced
from (
    select
        (
            select pg_catalog.count(*)
            from (select from trax_outbox.entry x where x.target operator(pg_catalog.=) $1::uuid limit 100000) e
        ) as waiting,
        (
            select x.queued_at
            from trax_outbox.entry x
            where x.target operator(pg_catalog.=) $1::uuid
            order by x.id
            limit 1
        ) as since
) w
cross join (
    select
        (select pg_catalog.count(*) from (select from trax_outbox.entry x where x.target is null limit 100000) e) as unplaced,
        (
            select x.queued_at
            from trax_outbox.entry x
            where x.target is null
            order by x.id
            limit 1
        ) as since
) u
