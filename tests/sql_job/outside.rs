//! Statements that run outside of a transaction, and the records of their runs.

use super::{ended, executor_of, failed, failure, live, output, queue, queue_with};
use harness::scheduler::violations;
use harness::session::Session;
use harness::{PATIENCE, eventually};

#[tokio::test]
async fn a_failure_after_a_commit_says_that_something_was_kept() {
    let (_database, s) = live().await;
    s.get("create table t (a int)").await;
    let error = failed(
        &s,
        "do $$ begin insert into t values (1); commit; perform 1 / 0; end $$",
    )
    .await;
    assert_eq!(error["transaction"], false, "{error}");
    assert_eq!(error["sqlstate"], "22012", "{error}");
    assert_eq!(s.get("select count(*) from t").await, "1");
    let error = failed(
        &s,
        "do $$ begin insert into t values (2); perform 1 / 0; end $$",
    )
    .await;
    assert!(error.get("transaction").is_none(), "{error}");
    assert_eq!(s.get("select count(*) from t").await, "1");
    // Cancelled after a part of its work has committed.
    let job = queue(
        &s,
        "do $$ begin insert into t values (3); commit; perform pg_sleep(1e9); end $$",
    )
    .await;
    eventually("a part has committed", PATIENCE, async || {
        match s.number("select count(*) from t where a = 3").await {
            1 => Ok(()),
            _ => Err("not yet".to_owned()),
        }
    })
    .await;
    s.get(&format!("select trax.cancel({job})")).await;
    assert_eq!(ended(&s, job).await, "cancelled");
    let detail = failure(&s, job).await;
    assert_eq!(detail["transaction"], false, "{detail}");
}

/// Ends a lease as the reaper does if its executor does not respond.
async fn reap(s: &Session, job: i64) {
    s.get(&format!(
        "update trax.lease set lease_expires_at = now(), reap_at = now(), timeout_at = now() - interval '1 h' where job_id = {job};
         select * from trax.tick()"
    ))
    .await;
}

#[tokio::test]
async fn a_statement_that_commits_after_its_lease_was_lost_is_told_in_the_log_and_its_run() {
    let (database, s) = live().await;
    s.get(
        "create table t (a int); create table gate (a int);
         create procedure p() language plpgsql as $$
            begin insert into t values (1); commit; lock table gate; commit; end $$",
    )
    .await;
    let locker = Session::of(&database).await;
    locker.get("begin; lock table gate").await;
    let job = queue_with(&s, "call p()", "max_retries => 1").await;
    let pid = executor_of(&s, "call p()").await;
    s.sees_waiting(pid).await;
    reap(&s, job).await;
    let lost = format!("select error from trax.run where job_id = {job} and attempt = 1");
    // The scheduler may hold the lock of the cycle and end the lease itself.
    let said = async || match s.get(&lost).await {
        said if said.contains("one outside may have") => Ok(()),
        said => Err(said),
    };
    eventually("the attempt is recorded", PATIENCE, said).await;
    locker.get("commit").await;
    eventually("the log has it", PATIENCE, async || {
        let file = harness::scheduler::sql_server().log_file();
        let log = std::fs::read_to_string(file).expect("the log can be read");
        let words = format!("the statement of SQL job {job} took effect after its lease was lost");
        if log.contains(&words) {
            Ok(())
        } else {
            Err("it does not".to_owned())
        }
    })
    .await;
    // At-least-once: the next attempt runs the statement again.
    assert_eq!(ended(&s, job).await, "completed");
    assert_eq!(s.get("select count(*) from t").await, "2");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
    output(&s, "select 1").await;
}

#[tokio::test]
async fn a_statement_in_a_transaction_whose_lease_was_lost_leaves_nothing() {
    let (database, s) = live().await;
    s.get("create table t (a int); create table gate (a int)")
        .await;
    let locker = Session::of(&database).await;
    locker.get("begin; lock table gate").await;
    let job = queue(&s, "insert into t values (1); lock table gate").await;
    let pid = executor_of(&s, "insert into t").await;
    s.sees_waiting(pid).await;
    reap(&s, job).await;
    assert_eq!(ended(&s, job).await, "failed");
    let said = failure(&s, job).await;
    assert_eq!(said["kind"], "lease_expired", "{said}");
    locker.get("commit").await;
    let busy =
        format!("select count(*) from pg_stat_activity where pid = {pid} and state = 'active'");
    eventually("its executor is done with it", PATIENCE, async || {
        match s.number(&busy).await {
            0 => Ok(()),
            _ => Err("it runs".to_owned()),
        }
    })
    .await;
    assert_eq!(s.get("select count(*) from t").await, "0");
    let runs = format!("select count(*) from trax.run where job_id = {job}");
    assert_eq!(s.get(&runs).await, "1");
    output(&s, "select 1").await;
}

#[tokio::test]
async fn a_statement_that_commits_runs_once_and_its_last_part_is_recorded_with_it() {
    let (_database, s) = live().await;
    s.get(
        "create sequence q; create table t (a int);
         create procedure p() language plpgsql as $$
            begin perform nextval('q'); raise notice 'one'; commit; insert into t values (1); end $$",
    )
    .await;
    let done = output(&s, "call p()").await;
    assert_eq!(done["transaction"], false, "{done}");
    assert_eq!(done["notices"], serde_json::json!(["one"]), "{done}");
    let done = output(
        &s,
        "do $$ begin perform nextval('q'); commit; perform nextval('q'); end $$",
    )
    .await;
    assert_eq!(done["transaction"], false, "{done}");
    assert_eq!(s.get("select last_value from q").await, "3");
    // The part after its last COMMIT shares a transaction with the record of its completion.
    let rows = "select count(*) from t, trax.run r where t.xmin = r.xmin";
    assert_eq!(s.get(rows).await, "1");
    let done = output(&s, "do $$ begin perform nextval('q'); end $$").await;
    assert_eq!(done["transaction"], true, "{done}");
    assert_eq!(s.get("select last_value from q").await, "4");
}

#[tokio::test]
async fn a_statement_that_means_something_in_a_block_only_runs_in_one() {
    let (_database, s) = live().await;
    s.get("create table t (a int)").await;
    for command in [
        "lock table t",
        "declare c cursor for select 1",
        "set constraints all immediate",
        "set local work_mem = '5MB'",
    ] {
        let done = output(&s, command).await;
        assert_eq!(done["transaction"], true, "{command}: {done}");
        assert_eq!(done["notices"], serde_json::json!([]), "{command}: {done}");
    }
}
