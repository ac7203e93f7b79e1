-- Returns the functions that are not ours and run, with the rights of our owner, when our tables
-- are written: of triggers, constraints, defaults and generated columns, indexes, rules, policies
-- and domains; and, without a function, the domains, whose owners may add constraints. Trusted when
-- a superuser or the table's owner has them. The server notes no dependency on its own functions,
-- so that it knows of none of those here.
with recursive family (oid) as (
    select c.oid
    from pg_class c
    where c.relnamespace = 'trax'::regnamespace
        and c.relkind in ('r', 'p', 'f')
    union
    -- Partitions may be in another schema.
    select i.inhrelid
    from family f
    join pg_inherits i on i.inhparent = f.oid
), own as materialized (
    select c.oid, c.relowner, format('%I.%I', n.nspname, c.relname) as name
    from family f
    join pg_class c on c.oid = f.oid
    join pg_namespace n on n.oid = c.relnamespace
), domain (relation, oid) as (
    select a.attrelid, t.oid
    from pg_attribute a
    join pg_type t on t.oid = a.atttypid
    where a.attrelid in (select o.oid from own o)
        and a.atttypid >= 16384
        and t.typtype = 'd'
    union
    select d.relation, b.oid
    from domain d
    join pg_type t on t.oid = d.oid
    join pg_type b on b.oid = t.typbasetype
    where b.typtype = 'd'
), part as (
    select t.tgrelid as relation, 'pg_trigger'::regclass as class, t.oid
    from pg_trigger t
    where t.tgrelid in (select o.oid from own o)
    union all
    select k.conrelid, 'pg_constraint', k.oid
    from pg_constraint k
    where k.conrelid in (select o.oid from own o)
    union all
    -- Those of generated columns too.
    select d.adrelid, 'pg_attrdef', d.oid
    from pg_attrdef d
    where d.adrelid in (select o.oid from own o)
    union all
    select x.indrelid, 'pg_class', x.indexrelid
    from pg_index x
    where x.indrelid in (select o.oid from own o)
        and (x.indexprs is not null or x.indpred is not null)
    union all
    select r.ev_class, 'pg_rewrite', r.oid
    from pg_rewrite r
    where r.ev_class in (select o.oid from own o)
    union all
    select y.polrelid, 'pg_policy', y.oid
    from pg_policy y
    where y.polrelid in (select o.oid from own o)
    union all
    select d.relation, 'pg_type', d.oid
    from domain d
    union all
    select d.relation, 'pg_constraint', k.oid
    from domain d
    join pg_constraint k on k.contypid = d.oid
)
select
    o.name as relation,
    pg_describe_object(m.class, m.oid, 0) as object,
    format('%I.%I', n.nspname, p.proname) as function,
    r.rolname::text as owner,
    r.rolsuper or p.proowner = o.relowner as is_trusted,
    p.oid as function_oid
from part m
join own o on o.oid = m.relation
join pg_depend d on d.classid = m.class and d.objid = m.oid
left join pg_operator x on d.refclassid = 'pg_operator'::regclass and x.oid = d.refobjid
join pg_proc p on p.oid = case d.refclassid when 'pg_proc'::regclass then d.refobjid else x.oprcode end
join pg_namespace n on n.oid = p.pronamespace
join pg_roles r on r.oid = p.proowner
where d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass)
    and n.nspname <> 'trax'
union all
select
    o.name,
    pg_describe_object('pg_type'::regclass, d.oid, 0),
    null,
    r.rolname,
    r.rolsuper or t.typowner = o.relowner,
    null
from domain d
join own o on o.oid = d.relation
join pg_type t on t.oid = d.oid
join pg_roles r on r.oid = t.typowner
order by is_trusted, relation, object, function
