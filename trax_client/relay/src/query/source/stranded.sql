-- The targets that rows wait for and that are not among those of the relay.
select pg_catalog.format('%s (%s)', t.name, t.target)
from trax_outbox.target t
where t.target operator(pg_catalog.<>) all ($1::uuid[])
    and exists (
        select
        from trax_outbox.entry e
        where e.target operator(pg_catalog.=) t.target
    )
order by t.name, t.target
limit 10
