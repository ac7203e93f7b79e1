//! The matrix: what each level may do with each object of the schema. An object without a line here
//! fails the test.

use super::role;
use harness::session::{Session, session};

/// Each object with the levels that may do something with it; what has `-` is for the owner alone.
/// Columns that a level may not read are named after `but`. The partitions of a day are one line.
const MATRIX: &str = include_str!("matrix.txt");

const RIGHTS: &str = "
with level (place, name, role) as (
    values (0, 'PUBLIC', '{nobody}'), (1, 'reader', '{reader}'), (2, 'producer', '{producer}'), (3, 'worker', '{worker}'), (4, 'admin', '{admin}')
), relation as (
    select
        c.oid,
        case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'f' then 'foreign table' else 'table' end as kind,
        regexp_replace(c.relname, '^run_[0-9]{8}$', 'run_(day)') as name
    from pg_class c
    where c.relnamespace = 'trax'::regnamespace
        and c.relkind not in ('i', 'I', 't')
), table_right (name) as (
    select distinct x.privilege_type from aclexplode(acldefault('r', 10::oid)) x
), object (kind, name, place, level, rights) as (
    select 'schema', 'trax', l.place, l.name, (
        select string_agg(lower(p), ' ' order by p) from unnest(array['CREATE', 'USAGE']) p
        where has_schema_privilege(l.role, 'trax', p)
    )
    from level l
    union all
    select 'function', p.proname, l.place, l.name, case when has_function_privilege(l.role, p.oid, 'execute') then 'execute' end
    from level l
    join pg_proc p on p.pronamespace = 'trax'::regnamespace
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
    join pg_foreign_server s on s.srvname = 'trax'
    union all
    select 'foreign data wrapper', w.fdwname, l.place, l.name, case when has_foreign_data_wrapper_privilege(l.role, w.oid, 'usage') then 'usage' end
    from level l
    join pg_foreign_data_wrapper w on w.fdwname = 'trax'
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

#[tokio::test]
async fn each_level_may_do_what_the_matrix_says_and_nothing_else() {
    let (db, s) = session().await;
    let mut sql = RIGHTS.to_owned();
    for level in ["nobody", "reader", "producer", "worker", "admin"] {
        let levels: &[&str] = if level == "nobody" { &[] } else { &[level] };
        sql = sql.replace(&format!("{{{level}}}"), &role(&db, &s, levels).await);
    }
    let seen = s.get(&sql).await;
    let wanted: Vec<&str> = MATRIX
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let seen: Vec<&str> = seen.lines().collect();
    let only = |these: &[&str], those: &[&str]| -> Vec<String> {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing.map(|line| (*line).to_owned()).collect()
    };
    let (more, less) = (only(&seen, &wanted), only(&wanted, &seen));
    assert!(
        more.is_empty() && less.is_empty(),
        "of the server and not in tests/whole/access/matrix.txt:\n{}\nin it and not of the server:\n{}",
        more.join("\n"),
        less.join("\n")
    );
}

#[tokio::test]
async fn no_reader_learns_a_token() {
    let (db, s) = session().await;
    let reader = role(&db, &s, &["reader"]).await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.report_progress({}, '0.5'); select * from trax.acquire_token('n', 'h', 1, '1 h')",
        job.key()
    ))
    .await;
    let them = Session::as_role(&db, &reader).await;
    for table in ["lease", "progress", "concurrency_token"] {
        for what in ["token", "*", "t", "to_jsonb(t)"] {
            let sql = format!("select {what} from trax.{table} t");
            assert_eq!(them.refusal(&sql).await.code, "42501", "{sql}");
        }
        let rows = format!("select count(*) from trax.{table}");
        assert_eq!(them.get(&rows).await, "1");
    }
    // Whatever else is a token has its type; nobody may do anything with that of a batch.
    let readable = format!(
        "select c.relname, a.attname
         from pg_class c
         join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.atttypid = 'uuid'::regtype
         where c.relnamespace = 'trax'::regnamespace
             and c.relkind <> 'i'
             and c.relname not in ('departure', 'arrival')
             and has_column_privilege('{reader}', c.oid, a.attnum, 'select')"
    );
    assert_eq!(s.get(&readable).await, "");
    assert_eq!(
        them.get("select state, progress from trax.job").await,
        "in_progress|0.5"
    );
    assert_eq!(
        them.get("select name, slot, holder from trax.concurrency_token")
            .await,
        "n|1|h"
    );
    // Nor from what is said of a fault.
    s.get("insert into trax.concurrency_token select 'other', 1, 1, token, 'h', acquired_at, extended_at, expires_at from trax.concurrency_token")
        .await;
    let faults = them.get("select detail from trax.check()").await;
    assert_eq!(faults, "slot 1 of \"n\", slot 1 of \"other\"");
}
