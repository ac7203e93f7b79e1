with gone as (
    delete from trax_outbox.result r
    where r.id operator(pg_catalog.=) any (array(
        select x.id
        from trax_outbox.result x
        where x.state is not null
            and coalesce(x.finished_at, x.carried_at) operator(pg_catalog.<) (
                select pg_catalog.now() operator(pg_catalog.-) o.result_retention
                from trax_outbox.relay o
            )
        order by coalesce(x.finished_at, x.carried_at)
        limit 10000
    ))
    returning r.id
)
select pg_catalog.count(*)
from gone
