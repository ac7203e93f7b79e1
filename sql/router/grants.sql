-- Last: nothing is for PUBLIC, nor for the roles that default privileges name. Roles get what they
-- need from trax.grant_access().

do $$
declare
    granted record;
begin
    for granted in
        select distinct
            o.object,
            case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as grantee
        from (
            select format('schema %I', n.nspname) as object, n.oid as namespace, n.nspowner as owner, n.nspacl as acl
            from pg_namespace n
            union all
            select
                format('%s %s', case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass),
                c.relnamespace, c.relowner, c.relacl
            from pg_class c
            union all
            select
                format('routine %s', p.oid::regprocedure), p.pronamespace, p.proowner,
                coalesce(p.proacl, acldefault('f', p.proowner))
            from pg_proc p
        ) o
        cross join aclexplode(o.acl) a
        where o.namespace in ('trax'::regnamespace, 'trax_router'::regnamespace)
            and a.grantee <> o.owner
    loop
        execute format('revoke all on %s from %s cascade', granted.object, granted.grantee);
    end loop;
end;
$$;
