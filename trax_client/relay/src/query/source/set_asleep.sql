update trax_outbox.target
set asleep = $2
where target operator(pg_catalog.=) $1::uuid
