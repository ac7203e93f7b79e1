-- The level that was granted to a role itself, told by a function that only this level and admin
-- may call. $1 role.
select l.level
from (
    values (1, 'admin', 'schedule'), (2, 'worker', 'claim_next'), (3, 'producer', 'trigger'), (4, 'reader', 'explain_manifest')
) l (rank, level, only_its)
join pg_catalog.pg_proc p on p.proname = l.only_its
join pg_catalog.pg_namespace n on n.oid = p.pronamespace and n.nspname = 'trax'
cross join lateral pg_catalog.aclexplode(p.proacl) a
join pg_catalog.pg_roles r on r.oid = a.grantee
where r.rolname = $1
order by l.rank
limit 1
