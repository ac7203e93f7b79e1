-- Rights: the grants of other roles than the owner on the extension's objects.

create function trax.granted_rights()
returns table (
    object text,
    grantee oid,
    privilege text,
    column_name name,
    grantable boolean,
    kind text,
    oid oid
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- In the Turkish locale, lower() turns the I of INSERT into another letter.
    select g.object, a.grantee, lower(a.privilege_type collate "C"), g.column_name, a.is_grantable, g.kind, g.oid
    from (
        select 'schema trax' as object, null::name as column_name, n.nspowner as owner, n.nspacl as acl, 'schema' as kind, n.oid
        from pg_namespace n
        where n.nspname = 'trax'
        union all
        select
            format('%s %s.%I', case c.relkind when 'S' then 'sequence' else 'table' end, 'trax', c.relname),
            null, c.relowner, c.relacl, 'relation', c.oid
        from pg_class c
        where c.relnamespace = 'trax'::regnamespace
            and c.relacl is not null
        union all
        select format('table trax.%I', c.relname), a.attname, c.relowner, a.attacl, 'relation', c.oid
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'trax'::regnamespace
            and a.attacl is not null
        union all
        select format('routine %s', p.oid::regprocedure), null, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)), 'routine', p.oid
        from pg_proc p
        where p.pronamespace = 'trax'::regnamespace
        union all
        select format('foreign data wrapper %I', w.fdwname), null, w.fdwowner, w.fdwacl, 'wrapper', w.oid
        from pg_foreign_data_wrapper w
        where w.fdwname = 'trax'
        union all
        select format('foreign server %I', s.srvname), null, s.srvowner, s.srvacl, 'server', s.oid
        from pg_foreign_server s
        where s.srvname = 'trax'
    ) g
    cross join aclexplode(g.acl) a
    where a.grantee <> g.owner
$$;
comment on function trax.granted_rights() is
    'Internal. Returns the rights that others than its owner have on each object of the schema trax; the grantee 0 is PUBLIC, kind and oid name the object for programs.';

create function trax.withdraw_rights(
    role oid default null,
    relation oid default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    granted record;
begin
    for granted in
        select distinct g.object, g.grantee
        from trax.granted_rights() g
        where (role is null or g.grantee = role)
            and (relation is null or (g.kind = 'relation' and g.oid = relation))
    loop
        execute format(
            'revoke all on %s from %s cascade',
            granted.object,
            case granted.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(granted.grantee)) end
        );
    end loop;
end;
$$;
comment on function trax.withdraw_rights(oid, oid) is
    'Internal. Revokes what one role or, without one, everybody but the owner may do with all objects of the schema trax or one relation in it.';

create function trax.code_of_others()
returns table (
    relation text,
    object text,
    function text,
    owner text,
    is_trusted boolean,
    function_oid oid
)
language c stable parallel restricted
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_code_of_others';
comment on function trax.code_of_others() is
    'Internal. Returns the functions that are not ours and run, with the rights of our owner, when our tables are written: of triggers, constraints, defaults and generated columns, indexes, rules, policies and domains, and without a table those of event triggers; trusted when a superuser or the table''s owner has them. A domain itself has no function.';

create function trax.refuse_foreign_code()
returns void
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_refuse_foreign_code';
comment on function trax.refuse_foreign_code() is
    'Internal. Raises an error when a function of a role that is neither a superuser nor the owner would run with the rights of the owner, when tables are written, made or dropped, or rights granted.';
