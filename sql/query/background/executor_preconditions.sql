-- Returns the state that an executor depends on: the installed extension and its owner, its role,
-- and the role's settings from alter database and alter role, as one text for comparison.
select
    e.extversion::text, e.extowner, a.rolname::text as role_name, a.rolsuper as is_superuser,
    a.rolcanlogin
        and (a.rolsuper or a.rolconnlimit <> 0)
        and pg_catalog.has_database_privilege(a.oid, $database, 'connect') as may_connect,
    (
        select
            pg_catalog.string_agg(
                pg_catalog.format('%s %s %s', s.setdatabase, s.setrole, s.setconfig), ' '
                order by s.setdatabase, s.setrole
            )
        from pg_catalog.pg_db_role_setting s
        where s.setrole in (0, $role)
            and s.setdatabase in (0, $database)
    ) as settings
from pg_catalog.pg_extension e
left join pg_catalog.pg_roles a on a.oid = $role
where e.extname = 'trax'
