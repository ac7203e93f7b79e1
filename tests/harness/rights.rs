//! Default privileges, and the rights of roles.

use crate::session::Session;

/// Sets default privileges: all rights on new objects of these kinds for a role and for PUBLIC.
pub async fn default_privileges_for(s: &Session, role: &str, kinds: &[&str]) {
    for kind in kinds {
        let defaults = format!("alter default privileges grant all on {kind} to {role}, public");
        s.get(&defaults).await;
    }
}

/// Returns the rights of a role and of PUBLIC on a schema and its objects, as names and privileges.
pub async fn rights(s: &Session, role: &str, schema: &str) -> String {
    s.get(&format!(
        "select coalesce(string_agg(distinct o.name || ' ' || a.privilege_type, ', '), '')
         from (
             select n.nspname::text as name, n.nspowner as owner, n.nspacl as acl, n.oid as namespace
             from pg_namespace n
             union all
             select c.relname, c.relowner, c.relacl, c.relnamespace from pg_class c
             union all
             select p.proname, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)), p.pronamespace
             from pg_proc p
         ) o
         cross join aclexplode(o.acl) a
         where o.namespace = '{schema}'::regnamespace
             and a.grantee in (0, '{role}'::regrole)"
    ))
    .await
}

/// A line for each object of a schema, with the levels that have rights on it, or `-` if only the
/// owner has. Columns that a level may not use follow `but`. The partitions of a day share a line.
const RIGHTS: &str = "
with level (place, name, role) as (
    values {levels}
), relation as (
    select
        c.oid,
        case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'f' then 'foreign table' else 'table' end as kind,
        regexp_replace(c.relname, '^run_[0-9]{8}$', 'run_(day)') as name
    from pg_class c
    where c.relnamespace = '{schema}'::regnamespace
        and c.relkind not in ('i', 'I', 't')
), table_right (name) as (
    select distinct x.privilege_type from aclexplode(acldefault('r', 10::oid)) x
), object (kind, name, place, level, rights) as (
    select 'schema', '{schema}', l.place, l.name, (
        select string_agg(lower(p), ' ' order by p) from unnest(array['CREATE', 'USAGE']) p
        where has_schema_privilege(l.role, '{schema}', p)
    )
    from level l
    union all
    select 'function', p.proname, l.place, l.name, case when has_function_privilege(l.role, p.oid, 'execute') then 'execute' end
    from level l
    join pg_proc p on p.pronamespace = '{schema}'::regnamespace
    union all
    select r.kind, r.name, l.place, l.name, concat_ws(' ',
        (select string_agg(lower(p.name), ' ' order by p.name) from table_right p where has_table_privilege(l.role, r.oid, p.name)),
        (
            select format('%s but (%s)', lower(p), string_agg(a.attname, ' ' order by a.attnum) filter (where not has_column_privilege(l.role, r.oid, a.attnum, p)))
            from unnest(array['INSERT', 'REFERENCES', 'SELECT', 'UPDATE']) p
            join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
            where has_any_column_privilege(l.role, r.oid, p)
                and not has_table_privilege(l.role, r.oid, p)
            group by p
        ))
    from level l
    join relation r on r.kind <> 'sequence'
    union all
    select r.kind, r.name, l.place, l.name, (
        select string_agg(lower(p), ' ' order by p) from unnest(array['SELECT', 'UPDATE', 'USAGE']) p
        where has_sequence_privilege(l.role, r.oid, p)
    )
    from level l
    join relation r on r.kind = 'sequence'
    union all
    select 'foreign server', s.srvname, l.place, l.name, case when has_server_privilege(l.role, s.oid, 'usage') then 'usage' end
    from level l
    join pg_foreign_server s on s.srvname = '{schema}'
    union all
    select 'foreign data wrapper', w.fdwname, l.place, l.name, case when has_foreign_data_wrapper_privilege(l.role, w.oid, 'usage') then 'usage' end
    from level l
    join pg_foreign_data_wrapper w on w.fdwname = '{schema}'
), line as (
    select distinct o.kind, o.name, o.place, o.level, nullif(o.rights, '') as rights
    from object o
), by_right as (
    select l.kind, l.name, l.rights, string_agg(l.level, ', ' order by l.place) as levels, min(l.place) as place
    from line l
    where l.rights is not null
    group by 1, 2, 3
)
select o.kind || ' ' || o.name || ': ' || coalesce(string_agg(b.rights || ' ' || b.levels, '; ' order by b.place), '-')
from (select distinct l.kind, l.name from line l) o
left join by_right b on b.kind = o.kind and b.name = o.name
group by o.kind, o.name
order by o.kind collate \"C\", o.name collate \"C\"";

/// Compares the rights of levels, each with a role that has it, on a schema and its objects with a
/// matrix: the lines of [`RIGHTS`], and comments.
pub async fn assert_matrix(s: &Session, schema: &str, levels: &[(&str, String)], matrix: &str) {
    let levels = levels.iter().enumerate();
    let levels: Vec<String> = levels
        .map(|(place, (level, role))| format!("({place}, '{level}', '{role}')"))
        .collect();
    let sql = RIGHTS.replace("{levels}", &levels.join(", "));
    let seen = s.get(&sql.replace("{schema}", schema)).await;
    let seen: Vec<&str> = seen.lines().collect();
    let wanted = matrix.lines().filter(|line| !line.starts_with('#'));
    let wanted: Vec<&str> = wanted.collect();
    let only = |these: &[&str], those: &[&str]| -> String {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing.map(|line| format!("{line}\n")).collect()
    };
    let (more, less) = (only(&seen, &wanted), only(&wanted, &seen));
    assert!(
        more.is_empty() && less.is_empty(),
        "of the server and not in the matrix of {schema}:\n{more}in it and not of the server:\n{less}"
    );
}
