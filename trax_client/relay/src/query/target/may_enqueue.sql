select pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) p.pronamespace
where n.nspname operator(pg_catalog.=) 'trax'
    and p.proname operator(pg_catalog.=) 'enqueue'
