-- Last: revokes everything from PUBLIC, and from the roles that default privileges name. Objects of
-- the extension trax keep their rights.

create function trax.grant_shard_rights()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    granted record;
begin
    for granted in
        select distinct like_it.privilege, quote_ident(pg_get_userbyid(g.grantee)) as role
        from (
            values
                ('routine trax.shard_of(bigint)', 'execute on function trax.where_is'),
                ('table trax.work_queue', 'select on trax.departure, trax.arrival, trax.group_home')
        ) like_it (object, privilege)
        join trax.granted_rights() g on g.object = like_it.object
        where g.grantee <> 0
    loop
        execute format('grant %s to %s', granted.privilege, granted.role);
    end loop;
end;
$$;
comment on function trax.grant_shard_rights() is
    'Internal. Grants roles that had a level before this extension was created the rights of their level on its objects. A dump leaves out what the script of an extension grants.';

do $$
declare
    granted record;
begin
    for granted in
        select distinct g.object, case g.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end as role
        from trax.granted_rights() g
        join pg_depend d on d.objid = g.oid and d.classid in ('pg_class'::regclass, 'pg_proc'::regclass)
        join pg_extension e on e.oid = d.refobjid and e.extname = 'trax_shard'
        where d.refclassid = 'pg_extension'::regclass
            and d.deptype = 'e'
    loop
        execute format('revoke all on %s from %s cascade', granted.object, granted.role);
    end loop;
end;
$$;
