-- The required objects, and whether this role may use them; null if one does not exist. Needs no
-- rights.
select
    (
        select pg_catalog.bool_or(
            pg_catalog.has_schema_privilege(n.oid, 'USAGE') and pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
        )
        from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) p.pronamespace
        where n.nspname operator(pg_catalog.=) 'trax'
            and p.proname operator(pg_catalog.=) 'enqueue'
    ),
    (
        select pg_catalog.bool_and(
            pg_catalog.has_schema_privilege(n.oid, 'USAGE')
            and pg_catalog.has_table_privilege(c.oid, 'SELECT')
            and (
                c.relname operator(pg_catalog.=) 'target'
                or pg_catalog.has_table_privilege(c.oid, 'INSERT')
            )
        )
        from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
        where n.nspname operator(pg_catalog.=) 'trax_relay'
            and c.relname operator(pg_catalog.=) any (array['source', 'carried', 'target']::name[])
        having pg_catalog.count(*) operator(pg_catalog.=) 3
    )
