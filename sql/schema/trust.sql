-- trust: the checks before anything is created. The first script of the install and of every
-- update.

-- Names in this script resolve only in these schemas.
set local search_path to pg_catalog, pg_temp;

do $$
begin
    if pg_catalog.getdatabaseencoding() operator(pg_catalog.<>) 'UTF8' then
        raise exception 'trax needs a database with the encoding UTF8'
            using errcode = '0A000',
                detail = pg_catalog.format('The encoding of this database is %s.', pg_catalog.getdatabaseencoding()),
                hint = 'Make one: create database jobs encoding ''UTF8'' template template0';
    end if;
end;
$$;

-- The owner of the schema, and roles that may create in it, can add functions that calls with
-- defaults would find before the extension's.
do $$
declare
    other text;
begin
    if exists (
        select
        from pg_catalog.pg_namespace n
        join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) n.nspowner
        where n.nspname operator(pg_catalog.=) 'trax'
            and not r.rolsuper
    ) then
        raise exception 'schema "trax" belongs to a role that is not a superuser'
            using errcode = '42501',
                detail = 'Its owner could change what trax does.',
                hint = 'Drop or rename that schema; create extension makes its own.';
    end if;
    select coalesce(pg_catalog.quote_ident(r.rolname), 'public')
    into other
    from pg_catalog.pg_namespace n
    cross join pg_catalog.aclexplode(n.nspacl) a
    left join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) a.grantee
    where n.nspname operator(pg_catalog.=) 'trax'
        and a.privilege_type operator(pg_catalog.=) 'CREATE'
        and r.rolsuper is not true
    order by a.grantee
    limit 1;
    if other is not null then
        raise exception 'others than superusers may create objects in schema "trax"'
            using errcode = '42501',
                detail = pg_catalog.format('Role %s could put functions beside those of trax and so change what trax does.', other),
                hint = pg_catalog.format('Type: revoke create on schema trax from %s; or, when default privileges gave it: alter default privileges revoke create on schemas from %s', other, other);
    end if;
end;
$$;
