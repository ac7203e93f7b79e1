select
    (select pg_catalog.count(*) from (select from trax_outbox.entry limit 100000) e),
    coalesce((
        select pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) e.queued_at)
        from trax_outbox.entry e
        order by e.id
        limit 1
    ), 0),
    (select pg_catalog.count(*) from (select from trax_outbox.refused limit 100000) r)
