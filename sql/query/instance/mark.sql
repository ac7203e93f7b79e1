-- Returns whether these tables belong to this server and database, and the home of their adoption.
select
    (
        select count(*) = 1 and bool_and(i.system_identifier = $system_identifier and i.database_oid = $database_oid)
        from trax.instance i
    )
    and (
        select count(*) = 1 and bool_and(a.system_identifier = $system_identifier and a.database_oid = $database_oid)
        from trax.adoption a
    )
    and not exists (
        select
        from pg_class c
        join pg_trigger t on t.tgrelid = c.oid
        join pg_proc p on p.oid = t.tgfoid
        where c.relnamespace = 'trax'::regnamespace
            and c.relkind = 'r'
            and c.relhastriggers
            and p.pronamespace = 'trax'::regnamespace
            and t.tgenabled <> 'A'
    ) as fits,
    (select max(a.home) from trax.adoption a) as home
