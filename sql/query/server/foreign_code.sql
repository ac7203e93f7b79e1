-- Returns the functions outside the extension that run, with the rights of its owner, when its
-- tables are written: of triggers, constraints, defaults and generated columns, indexes, rules,
-- policies and of the types that columns and these use. Also, without a function, domains, whose
-- owners may add constraints, and composite types, whose owners may add domains. Trusted when a
-- superuser or the table's owner owns them. The server records no dependency on its own functions,
-- so these are not found here.
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
), part as (
    select t.tgrelid as relation, 'pg_trigger'::regclass as class, t.oid
    from pg_trigger t
    where t.tgrelid in (select o.oid from own o)
    union all
    select k.conrelid, 'pg_constraint', k.oid
    from pg_constraint k
    where k.conrelid in (select o.oid from own o)
    union all
    -- Also of generated columns.
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
), type (relation, oid) as (
    select a.attrelid, a.atttypid
    from pg_attribute a
    where a.attrelid in (select o.oid from own o)
        and a.atttypid >= 16384
    union
    select p.relation, d.refobjid
    from part p
    join pg_depend d on d.classid = p.class and d.objid = p.oid
    where d.refclassid = 'pg_type'::regclass
        and d.refobjid >= 16384
    union
    -- Of a domain, an array, a composite type, a range or a multirange.
    select t.relation, within.oid
    from type t
    join pg_type y on y.oid = t.oid
    cross join lateral (
        values (y.typbasetype), (y.typelem)
        union all
        select a.atttypid
        from pg_attribute a
        where a.attrelid = y.typrelid
            and a.attnum > 0
        union all
        select r.rngsubtype
        from pg_range r
        where r.rngtypid = y.oid or r.rngmultitypid = y.oid
    ) within (oid)
    where within.oid >= 16384
), code as (
    select p.relation, p.class, p.oid
    from part p
    union all
    select t.relation, 'pg_type', t.oid
    from type t
    union all
    select t.relation, 'pg_constraint', k.oid
    from type t
    join pg_constraint k on k.contypid = t.oid
)
select
    o.name as relation,
    pg_describe_object(m.class, m.oid, 0) as object,
    format('%I.%I', n.nspname, p.proname) as function,
    r.rolname::text as owner,
    r.rolsuper or p.proowner = o.relowner as is_trusted,
    p.oid as function_oid
from code m
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
from type d
join own o on o.oid = d.relation
join pg_type t on t.oid = d.oid
join pg_roles r on r.oid = t.typowner
where t.typtype in ('d', 'c')
    and t.typnamespace <> 'trax'::regnamespace
order by is_trusted, relation, object, function
