-- At most so many rows, and no more after 8 MB.
select w.id, w.key, w.document
from (
    select
        e.id,
        e.key,
        e.document,
        pg_catalog.sum(pg_catalog.octet_length(e.document)) over (order by e.id)
            operator(pg_catalog.-) pg_catalog.octet_length(e.document) as bytes_before
    from (
        select x.id, x.key::text as key, pg_catalog.to_jsonb(x)::text as document
        from trax_outbox.entry x
        order by x.id
        limit $1
    ) e
) w
where w.bytes_before operator(pg_catalog.<) 8388608
order by w.id
