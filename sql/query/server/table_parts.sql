-- What runs when tables are written: triggers, constraints, defaults and generated columns, indexes
-- with expressions, rules and policies, as rows of their catalogs.
select 'pg_trigger'::regclass::oid as class, t.oid
from pg_trigger t
where t.tgrelid = any($tables)
union all
select 'pg_constraint'::regclass, k.oid
from pg_constraint k
where k.conrelid = any($tables)
union all
select 'pg_attrdef'::regclass, d.oid
from pg_attrdef d
where d.adrelid = any($tables)
union all
select 'pg_class'::regclass, x.indexrelid
from pg_index x
where x.indrelid = any($tables)
    and (x.indexprs is not null or x.indpred is not null)
union all
select 'pg_rewrite'::regclass, r.oid
from pg_rewrite r
where r.ev_class = any($tables)
union all
select 'pg_policy'::regclass, y.oid
from pg_policy y
where y.polrelid = any($tables)
