-- The page's role, the functions among $1 that it may execute, and the server's clock. $1
-- functions.
select
    current_user::text as role,
    current_database()::text as database,
    pg_catalog.clock_timestamp() as now,
    pg_catalog.pg_is_in_recovery() as standby,
    array(
        select p.proname::text
        from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'trax'
            and p.proname = any ($1::text[])
            and pg_catalog.has_schema_privilege(n.oid, 'usage')
            and pg_catalog.has_function_privilege(p.oid, 'execute')
    ) as functions
