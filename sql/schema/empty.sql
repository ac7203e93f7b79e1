-- Objects that exist in the schema could be found first by the extension's calls.
do $$
declare
    other text;
begin
    select pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
    into other
    from pg_catalog.pg_depend d
    join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) d.refobjid
    where d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
        and n.nspname operator(pg_catalog.=) 'trax'
        and d.classid operator(pg_catalog.<>) 'pg_catalog.pg_extension'::pg_catalog.regclass
        and d.classid operator(pg_catalog.<>) 'pg_catalog.pg_default_acl'::pg_catalog.regclass
    order by d.classid, d.objid
    limit 1;
    if other is not null then
        raise exception 'schema "trax" is not empty'
            using errcode = '55000',
                detail = pg_catalog.format('There is %s, which calls of trax could find first.', other),
                hint = 'Drop what is in that schema, or rename it; create extension makes its own.';
    end if;
end;
$$;
