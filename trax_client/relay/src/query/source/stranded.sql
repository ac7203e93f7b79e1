-- The targets that rows wait for and that this relay does not serve.
select pg_catalog.format('%s (%s)', coalesce(t.name, 'a target that was replaced'), e.target)
from (
    select distinct x.target
    from trax_outbox.entry x
    where x.target operator(pg_catalog.<>) all ($1::uuid[])
) e
left join trax_outbox.target t on t.target operator(pg_catalog.=) e.target
order by t.name, e.target
limit 10
