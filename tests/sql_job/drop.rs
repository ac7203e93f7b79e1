//! The extension or the database is dropped while executors run.

use super::{ended, executor_of, failed, live, output, queue};
use harness::scheduler::{connect, execute, sql_database};
use harness::session::Session;
use harness::{PATIENCE, eventually};

async fn no_executor(s: &Session) {
    let sql = "select count(*) from pg_stat_activity where backend_type = 'trax executor'
        and datname = current_database()";
    eventually("no executor is left", PATIENCE, async || {
        match s.get(sql).await.as_str() {
            "0" => Ok(()),
            left => Err(left.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn executors_end_with_the_extension_and_their_statements_are_undone() {
    let (_database, s) = live().await;
    s.get("create table t (a int)").await;
    output(&s, "select 'it idles'").await;
    s.get("drop extension trax").await;
    no_executor(&s).await;
    s.get("create extension trax").await;
    queue(&s, "insert into t values (1); select pg_sleep(1e9)").await;
    executor_of(&s, "pg_sleep").await;
    s.get("drop extension trax").await;
    no_executor(&s).await;
    assert_eq!(s.get("select count(*) from t").await, "0");
    s.get("create extension trax").await;
    output(&s, "insert into t values (2)").await;
    assert_eq!(s.get("select a from t").await, "2");
}

#[tokio::test]
async fn a_statement_that_ends_after_the_extension_has_gone_is_undone() {
    let (_database, s) = live().await;
    let locker = Session::of(&_database).await;
    s.get("create table t (a int); create table gate (a int)")
        .await;
    locker.get("begin; lock table gate").await;
    queue(&s, "insert into t values (1); select count(*) from gate").await;
    let pid = executor_of(&s, "from gate").await;
    s.sees_waiting(pid).await;
    s.get("begin; drop extension trax").await;
    s.get("commit").await;
    locker.get("commit").await;
    no_executor(&s).await;
    assert_eq!(s.get("select count(*) from t").await, "0");
}

#[tokio::test]
async fn a_statement_that_drops_the_extension_fails_with_words_and_drops_nothing() {
    let (_database, s) = live().await;
    let error = failed(&s, "drop extension trax").await;
    let said = error["error"].as_str().expect("an error");
    assert_eq!(
        said, "the extension trax is not installed in this database",
        "{error}"
    );
    output(&s, "select 1").await;
    // A block that commits by itself drops the extension.
    queue(&s, "do $$ begin drop extension trax; commit; end $$").await;
    no_executor(&s).await;
    let left = "select count(*) from pg_extension where extname = 'trax'";
    assert_eq!(s.get(left).await, "0");
}

#[tokio::test]
async fn a_database_is_dropped_although_an_executor_idles_and_by_force_although_one_runs() {
    for (command, by_force) in [
        ("select 'it idles'", false),
        ("select 'it idles'", true),
        ("select pg_sleep(1e9)", true),
    ] {
        let (database, s) = live().await;
        let job = queue(&s, command).await;
        if command.contains("sleep") {
            executor_of(&s, "pg_sleep").await;
        } else {
            assert_eq!(ended(&s, job).await, "completed");
        }
        let other = sql_database().await;
        let o = connect(&other).await;
        drop(s);
        let force = if by_force { "with (force)" } else { "" };
        execute(&o, &format!("drop database {} {force}", database.name())).await;
    }
}
