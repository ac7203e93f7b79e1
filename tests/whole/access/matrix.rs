//! The matrix of the rights of each level on each object of the schema. An object without a line
//! here fails the test.

use super::role;
use harness::rights::assert_matrix;
use harness::session::{Session, session};

const MATRIX: &str = include_str!("matrix.txt");

#[tokio::test]
async fn each_level_may_do_what_the_matrix_says_and_nothing_else() {
    let (db, s) = session().await;
    let mut levels = vec![("PUBLIC", role(&db, &s, &[]).await)];
    for level in ["reader", "producer", "worker", "admin"] {
        levels.push((level, role(&db, &s, &[level]).await));
    }
    assert_matrix(&s, "trax", &levels, MATRIX).await;
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
    // All other tokens have the token type.
    let readable = format!(
        "select c.relname, a.attname
         from pg_class c
         join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.atttypid = 'uuid'::regtype
         where c.relnamespace = 'trax'::regnamespace
             and c.relkind <> 'i'
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
    // The report of a fault must not show the token either.
    s.get("insert into trax.concurrency_token select 'other', 1, 1, token, 'h', acquired_at, extended_at, expires_at from trax.concurrency_token")
        .await;
    let faults = them.get("select detail from trax.check()").await;
    assert_eq!(faults, "slot 1 of \"n\", slot 1 of \"other\"");
}
