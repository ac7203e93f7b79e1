//! Executors that are terminated or killed, and servers that stop.

use super::{ended, failure, queue, queue_with};
use harness::scheduler::{
    connect, execute, new_name, scheduler_of, scheduling, sql_database, violations,
};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::Stop;

const EXECUTORS: &str =
    "select coalesce(min(pid), 0) from pg_stat_activity where backend_type = 'trax executor' and state = 'active'
     and datname = current_database() and query like '%pg_sleep%'";

/// Returns the process that executes a sleeping statement.
async fn executor(s: &Session) -> i32 {
    eventually("an executor that sleeps", PATIENCE, async || {
        let pid: i32 = s.get(EXECUTORS).await.parse().expect("a number");
        if pid != 0 {
            Ok(pid)
        } else {
            Err("none".to_owned())
        }
    })
    .await
}

#[tokio::test]
async fn a_terminated_executor_is_a_lost_lease_and_its_job_runs_again_at_once() {
    let database = sql_database().await;
    let s = Session::of(&database).await;
    s.get("create table t (a int); create table first (a int)")
        .await;
    let command = "insert into t values (1);
        do $$ begin if not exists (select from first) then perform pg_sleep(1e9); end if; end $$";
    let job = queue_with(&s, command, "max_retries => 1").await;
    let pid = executor(&s).await;
    let asked = Instant::now();
    s.get(&format!(
        "insert into first values (1); select pg_terminate_backend({pid})"
    ))
    .await;
    assert_eq!(
        ended(&s, job).await,
        "completed",
        "{}",
        failure(&s, job).await
    );
    assert!(
        asked.elapsed() < Duration::from_secs(20),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(s.get("select count(*) from t").await, "1");
    let kinds = format!(
        "select string_agg(coalesce(failure_kind, state), ',' order by attempt) from trax.run where job_id = {job}"
    );
    assert_eq!(s.get(&kinds).await, "lease_expired,completed");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_database_is_dropped_although_executors_are_connected() {
    let database = sql_database().await;
    let s = Session::of(&database).await;
    queue(&s, "select pg_sleep(1e9)").await;
    executor(&s).await;
    let other = sql_database().await;
    let o = connect(&other).await;
    drop(s);
    execute(&o, &format!("drop database {}", database.name())).await;
}

#[tokio::test]
async fn a_fast_shutdown_ends_a_long_statement_and_a_crash_loses_and_doubles_none() {
    // Commits must survive a crash.
    let durable = scheduling().setting("synchronous_commit", "on");
    let mut server = durable.start().expect("a server starts");
    let name = new_name("sql_crash");
    let database = server.database(&name).await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), &name, PATIENCE).await;
    s.get("create table t (a int)").await;
    let long = queue_with(&s, "select pg_sleep(1e9)", "max_retries => 9").await;
    executor(&s).await;
    drop(s);
    let took = server.stop(Stop::Fast).expect("the server stops");
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.start().expect("the server starts");
    let s = Session::of(&server.existing(&name)).await;
    s.get(&format!("select trax.cancel({long})")).await;
    ended(&s, long).await;
    // Each statement takes effect once, however its executor or the server ends.
    s.get("select count(trax.enqueue_sql(format('insert into t values (%s)', g), max_retries => 50)) from generate_series(1, 300) g").await;
    for round in 0..4 {
        eventually("some of them have run", PATIENCE, async || {
            let sql = "select count(*) from t";
            let count: i64 = s.get(sql).await.parse().expect("a number");
            if count > 20 * round {
                Ok(())
            } else {
                Err(count.to_string())
            }
        })
        .await;
        s.get("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'trax executor'").await;
    }
    drop(s);
    server.kill().expect("the server is killed");
    server.start().expect("the server starts");
    let s = Session::of(&server.existing(&name)).await;
    eventually("all have run", PATIENCE, async || {
        let left = "select string_agg(j, E'\n') from (
            select to_jsonb(q)::text from trax.work_queue q
            union all select to_jsonb(l)::text from trax.lease l
            union all select to_jsonb(r)::text from trax.run r
                where not r.final and (exists (select from trax.work_queue q where q.job_id = r.job_id)
                    or exists (select from trax.lease l where l.job_id = r.job_id))
        ) left_over (j)";
        let left = s.get(left).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(
        s.get("select count(*), count(distinct a) from t").await,
        "300|300"
    );
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}
