-- Returns the owner of a schema from catalogs alone: nothing in the schema is read or called. No
-- row means that there is no such schema. $1 is its name; $2 the extensions that may have created
-- it, null if a SQL file does.
--
-- An owner is trusted if it gains no rights from code that this role runs for it: a superuser, the
-- owner of the extension, or a role that may become this one. Objects made by a file may also
-- belong to the owner of the database, unless the current role is a superuser.
with here as materialized (
    select n.oid, n.nspowner, x.extowner, x.extension
    from pg_catalog.pg_namespace n
    left join lateral (
        select e.extowner, e.extname::text as extension
        from pg_catalog.pg_extension e
        where e.extname operator(pg_catalog.=) any ($2::text[]::name[])
            and (
                e.extnamespace operator(pg_catalog.=) n.oid
                or exists (
                    select
                    from pg_catalog.pg_depend d
                    where d.classid operator(pg_catalog.=) 'pg_catalog.pg_namespace'::regclass
                        and d.objid operator(pg_catalog.=) n.oid
                        and d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_extension'::regclass
                        and d.refobjid operator(pg_catalog.=) e.oid
                        and d.deptype operator(pg_catalog.=) 'e'
                )
            )
        limit 1
    ) x on true
    where n.nspname operator(pg_catalog.=) $1::name
),
owner as (
    select h.nspowner as role from here h
    union
    select p.proowner
    from here h
    join pg_catalog.pg_proc p on p.pronamespace operator(pg_catalog.=) h.oid
    union
    select c.relowner
    from here h
    join pg_catalog.pg_class c on c.relnamespace operator(pg_catalog.=) h.oid
    union
    select p.proowner
    from here h
    join pg_catalog.pg_class c on c.relnamespace operator(pg_catalog.=) h.oid
    join pg_catalog.pg_trigger t on t.tgrelid operator(pg_catalog.=) c.oid
    join pg_catalog.pg_proc p on p.oid operator(pg_catalog.=) t.tgfoid
)
select
    pg_catalog.pg_get_userbyid(h.nspowner)::text as owner,
    h.extension is not null as is_member,
    (
        select m.rolname::text
        from pg_catalog.pg_roles m
        where m.rolname operator(pg_catalog.=) current_user
            and not m.rolsuper
    ) as reader,
    (
        select pg_catalog.pg_get_userbyid(o.role)::text
        from owner o
        left join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) o.role
        where r.rolsuper is not true
            and o.role is distinct from h.extowner
            and not pg_catalog.pg_has_role(o.role, current_user, 'MEMBER')
            and (
                $2 is not null
                or not exists (
                    select
                    from pg_catalog.pg_database d
                    cross join pg_catalog.pg_roles m
                    where d.datname operator(pg_catalog.=) pg_catalog.current_database()
                        and d.datdba operator(pg_catalog.=) o.role
                        and m.rolname operator(pg_catalog.=) current_user
                        and not m.rolsuper
                )
            )
        order by 1
        limit 1
    ) as stranger
from here h
