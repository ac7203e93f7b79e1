-- Last: revokes everything from PUBLIC, and from the roles that default privileges name.
-- trax.grant_access() grants roles their rights.

do $$
declare
    grantee text;
begin
    for grantee in
        select 'public'
        union
        select quote_ident(pg_get_userbyid(a.grantee))
        from pg_default_acl d
        cross join aclexplode(d.defaclacl) a
        where d.defaclrole = current_user::regrole
            and a.grantee not in (0, d.defaclrole)
    loop
        execute format('revoke all on schema trax, trax_router from %s cascade', grantee);
        execute format('revoke all on all tables in schema trax, trax_router from %s cascade', grantee);
        execute format('revoke all on all sequences in schema trax, trax_router from %s cascade', grantee);
        execute format('revoke all on all routines in schema trax, trax_router from %s cascade', grantee);
    end loop;
end;
$$;
