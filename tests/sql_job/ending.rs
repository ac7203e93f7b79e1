//! Statements that must end: cancelled, timed out, or in a disabled group.

use super::{ended, executor_of, failure, live, queue, queue_with, sleeper_of};
use harness::scheduler::violations;
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_cancel_ends_a_running_statement() {
    let (_database, s) = live().await;
    for command in [
        "select pg_sleep(1e9)",
        "select count(*) from generate_series(1, 1e15::bigint) g where g % 7 = 8",
        "do $$ begin loop null; end loop; end $$",
    ] {
        let marks = ["pg_sleep", "generate_series", "end loop"];
        let mark = marks.into_iter().find(|mark| command.contains(mark));
        let mark = mark.expect("each has one");
        let job = queue(&s, command).await;
        executor_of(&s, mark).await;
        s.get(&format!("select trax.cancel({job})")).await;
        assert_eq!(ended(&s, job).await, "cancelled", "{command}");
    }
}

#[tokio::test]
async fn a_timeout_ends_a_running_statement() {
    let (_database, s) = live().await;
    let job = queue_with(
        &s,
        "select pg_sleep(1e9)",
        "max_retries => 0, timeout => '2 s'",
    )
    .await;
    assert_eq!(ended(&s, job).await, "failed");
    assert_eq!(failure(&s, job).await["kind"], "timeout");
}

#[tokio::test]
async fn a_group_that_is_switched_off_ends_its_statements_and_runs_them_later() {
    let (_database, s) = live().await;
    s.get("create table t (a int); create table pass (a int)")
        .await;
    let command = "insert into t values (1);
        do $$ begin if not exists (select from pass) then perform pg_sleep(1e9); end if; end $$";
    let job = queue_with(&s, command, "group_name => 'g', max_retries => 0").await;
    let other = queue(&s, "select pg_sleep(1e9), 'other'").await;
    sleeper_of(&s, "from pass").await;
    let pid = executor_of(&s, "other").await;
    s.get("select trax.configure_group('g', enabled => false)")
        .await;
    let waits =
        format!("select count(*) from trax.work_queue where job_id = {job} and attempts = 0");
    eventually("the job waits again", PATIENCE, async || {
        match s.number(&waits).await {
            1 => Ok(()),
            _ => Err("it does not".to_owned()),
        }
    })
    .await;
    assert_eq!(
        executor_of(&s, "other").await,
        pid,
        "other groups are not disturbed"
    );
    assert_eq!(
        s.get(&format!(
            "select count(*) from trax.run where job_id = {job}"
        ))
        .await,
        "0"
    );
    s.get("insert into pass values (1); select trax.configure_group('g', enabled => true)")
        .await;
    assert_eq!(ended(&s, job).await, "completed");
    assert_eq!(s.get("select count(*) from t").await, "1");
    s.get(&format!("select trax.cancel({other})")).await;
    assert_eq!(ended(&s, other).await, "cancelled");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_cancel_of_a_statement_of_a_group_that_is_switched_off_is_a_cancel() {
    let (_database, s) = live().await;
    let job = queue_with(
        &s,
        "do $$ begin begin perform pg_sleep(1e9);
           exception when query_canceled then null; end; perform pg_sleep(1e9); end $$",
        "group_name => 'g', max_retries => 0",
    )
    .await;
    executor_of(&s, "query_canceled").await;
    s.get(&format!(
        "select trax.configure_group('g', enabled => false); select trax.cancel({job})"
    ))
    .await;
    assert_eq!(ended(&s, job).await, "cancelled");
}

#[tokio::test]
async fn a_pause_lets_a_statement_end_and_none_begin() {
    let (database, s) = live().await;
    s.get("create table t (a int); create table gate (a int)")
        .await;
    let locker = Session::of(&database).await;
    locker.get("begin; lock table gate").await;
    let running = queue(&s, "lock table gate; insert into t values (1)").await;
    let pid = executor_of(&s, "lock table gate").await;
    s.sees_waiting(pid).await;
    s.get("select trax.pause('a new disk')").await;
    let waiting = queue(&s, "insert into t values (2)").await;
    locker.get("commit").await;
    assert_eq!(ended(&s, running).await, "completed");
    s.get("select trax.resume()").await;
    assert_eq!(ended(&s, waiting).await, "completed");
    let order = format!(
        "select r.started_at > a.at from trax.run r, trax.audit a where r.job_id = {waiting} and a.action = 'resume'"
    );
    assert_eq!(
        s.get(&order).await,
        "t",
        "it waited for the end of the pause"
    );
}

#[tokio::test]
async fn an_executor_without_a_job_ends_after_its_idle_timeout() {
    let (database, s) = live().await;
    assert_eq!(s.get("show trax.sql_worker_idle_timeout").await, "1min");
    let name = database.name();
    s.get(&format!(
        "alter database {name} set trax.sql_worker_idle_timeout = '3 s'"
    ))
    .await;
    let job = queue(&s, "select 1").await;
    assert_eq!(ended(&s, job).await, "completed");
    let executors = "select count(*) from pg_stat_activity
        where backend_type = 'trax executor' and datname = current_database()";
    assert_eq!(s.get(executors).await, "1");
    let completed = Instant::now();
    eventually("the end of the executor", PATIENCE, async || {
        match s.number(executors).await {
            0 => Ok(()),
            _ => Err("it is there".to_owned()),
        }
    })
    .await;
    let stayed = completed.elapsed();
    assert!(stayed > Duration::from_secs(2), "{stayed:?}");
    // The next statement gets a new executor.
    let job = queue(&s, "select 2").await;
    assert_eq!(ended(&s, job).await, "completed");
}

#[tokio::test]
async fn a_cancel_and_a_timeout_end_what_a_statement_does_when_it_commits() {
    let (_database, s) = live().await;
    s.get(
        "create table t (a int);
         create function slow() returns trigger language plpgsql
         as 'begin perform pg_sleep(1e9); return null; end';
         create constraint trigger slow after insert on t deferrable initially deferred
         for each row execute function slow()",
    )
    .await;
    for command in [
        "insert into t values (1)",
        "select 1; insert into t values (1)",
        "call p()",
        "declare c cursor with hold for select pg_sleep(1e9)",
    ] {
        s.get(
            "create or replace procedure p() language plpgsql
             as 'begin commit; insert into t values (1); end'",
        )
        .await;
        let job = queue(&s, command).await;
        let mark = command.split(['(', ' ']).next().expect("a word");
        sleeper_of(&s, mark).await;
        s.get(&format!("select trax.cancel({job})")).await;
        assert_eq!(ended(&s, job).await, "cancelled", "{command}");
        let job = queue_with(&s, command, "max_retries => 0, timeout => '1 s'").await;
        assert_eq!(ended(&s, job).await, "failed", "{command}");
        let error = failure(&s, job).await;
        assert_eq!(error["kind"], "timeout", "{command}: {error}");
        assert_eq!(
            error["error"], "it ran longer than its timeout",
            "{command}: {error}"
        );
    }
    assert_eq!(s.get("select count(*) from t").await, "0");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}
