delete from trax_relay.carried c
where c.key operator(pg_catalog.=) any ($1::uuid[])
