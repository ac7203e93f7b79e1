-- Returns the roles through which a role may call a function, or insert into a table: a row for
-- each role that has the right and whose rights the role has.
select
    x.rolname::text as role,
    exists (
        select
        from pg_proc m
        cross join aclexplode(m.proacl) b
        where m.pronamespace = 'trax'::regnamespace
            and m.proname = 'limited_access'
            and b.grantee = a.grantee
            and a.grantee <> m.proowner
    ) as is_limited,
    s.level,
    s.tasks,
    s.groups
from (
    select coalesce(p.proacl, acldefault('f', p.proowner)) as acl, 'EXECUTE' as privilege
    from pg_proc p
    where p.oid = $function
    union all
    select coalesce(c.relacl, acldefault('r', c.relowner)), 'INSERT'
    from pg_class c
    where c.oid = $table
) o
cross join aclexplode(o.acl) a
left join pg_roles x on x.oid = a.grantee
left join trax.access_scope s on s.role = x.rolname
where a.privilege_type = o.privilege
    and case when a.grantee = 0 then true else pg_has_role($role, a.grantee, 'usage') end
order by 1
