-- Returns the roles as which no statement may run here: they were dropped, may not log in or
-- connect, or have a connection limit of 0.
select o.role_oid
from unnest($roles) o (role_oid)
left join pg_catalog.pg_roles a on a.oid = o.role_oid
where not coalesce(
    a.rolcanlogin
        and (a.rolsuper or a.rolconnlimit <> 0)
        and pg_catalog.has_database_privilege(a.oid, pg_catalog.current_database(), 'connect'),
    false
)
