//! Servers that stop, are promoted, or lack a slot for an executor or the library.

use super::{ended, executor_of, queue, queue_with, sleeper_of};
use harness::process::send_signal;
use harness::scheduler::{new_name, scheduler_of, scheduling, status};
use harness::session::Session;
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::{Server, Stop};

/// Statements that end only when cancelled: one that sleeps and two that compute.
const ENDLESS: [(&str, &str); 3] = [
    ("pg_sleep", "select pg_sleep(1e9)"),
    (
        "generate_series",
        "select count(*) from generate_series(1, 1e15::bigint) g where g % 7 = 8",
    ),
    ("end loop", "do $$ begin loop null; end loop; end $$"),
];

/// A server that runs three endless statements, and a session there.
async fn busy() -> (Server, Session) {
    let server = scheduling()
        .setting("synchronous_commit", "on")
        .setting("trax.max_sql_workers", "3")
        .start()
        .expect("a server starts");
    let name = new_name("sql_stop");
    let database = server.database(&name).await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), &name, PATIENCE).await;
    for (mark, command) in ENDLESS {
        queue_with(&s, command, "max_retries => 9").await;
        executor_of(&s, mark).await;
    }
    (server, s)
}

/// The times of log lines with these words, in seconds of the day.
fn logged(log: &str, words: &str) -> Vec<f64> {
    let seconds = |line: &str| {
        let time = line.split(' ').nth(1).expect("a line begins with its time");
        time.split(':').fold(0.0, |sum, part| {
            sum * 60.0 + part.parse::<f64>().expect("a number")
        })
    };
    log.lines()
        .filter(|line| line.contains(words))
        .map(seconds)
        .collect()
}

#[tokio::test]
async fn a_fast_shutdown_ends_every_statement_within_two_seconds() {
    let (mut server, s) = busy().await;
    drop(s);
    server.stop(Stop::Fast).expect("the server stops");
    // Times come from the log, since a shutdown on a busy machine also waits for other processes.
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    let asked = logged(&log, "received fast shutdown request")[0];
    let told = logged(&log, "terminating background worker \"trax executor\"");
    assert_eq!(told.len(), 3, "{log}");
    for at in told {
        let took = (at - asked).rem_euclid(24.0 * 3600.0);
        assert!(took < 2.0, "{took} s: {log}");
    }
}

#[tokio::test]
async fn a_smart_shutdown_does_not_wait_for_statements() {
    let (mut server, s) = busy().await;
    drop(s);
    let pid = server.pid().expect("it runs");
    send_signal("TERM", i32::try_from(pid).expect("a process id is small"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.is_running() {
        assert!(Instant::now() < deadline, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_standby_runs_no_statement_before_it_is_promoted() {
    let server = scheduling()
        .setting("trax.max_sql_workers", "0")
        .start()
        .expect("a server starts");
    let name = new_name("sql_standby");
    let database = server.database(&name).await.expect("a database is made");
    let s = Session::of(&database).await;
    s.get("create table t (a int)").await;
    let job = queue(&s, "insert into t values (1)").await;
    let standby = Standby::of(&server, &["trax.max_sql_workers=2"]).await;
    let written = s.get("select pg_current_wal_insert_lsn()").await;
    let client = standby.connect(&name).await;
    standby.has_replayed(&client, &written).await;
    let mut there = tokio_postgres::Config::new();
    there.host_path(server.socket_dir()).port(standby.port());
    there.user("postgres").dbname(&name);
    let t = Session::with(there).await;
    let workers =
        "select count(*) from pg_stat_activity where backend_type ~ '^trax (executor|scheduler)'";
    assert_eq!(t.get(workers).await, "0");
    assert_eq!(t.get("select count(*) from trax.lease").await, "0");
    t.get("select pg_promote()").await;
    assert_eq!(ended(&t, job).await, "completed");
    assert_eq!(t.get("select count(*) from t").await, "1");
    drop(t);
    drop(client);
    drop(standby);
}

/// Makes waiting jobs look a minute older, for `trax.status()`.
async fn age(s: &Session) {
    s.get(
        "update trax.work_queue set (run_at, queued_at) = (run_at - interval '1 min', queued_at - interval '1 min')",
    )
    .await;
}

#[tokio::test]
async fn without_a_free_worker_slot_statements_wait_and_status_says_so() {
    // The launchers of logical replication and of trax take two slots, the scheduler one, and an
    // endless statement the last.
    let server = harness::options()
        .fast()
        .setting("max_worker_processes", "4")
        .setting("trax.vacuum", "off")
        .start()
        .expect("a server starts");
    let database = server.database("one").await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), "one", PATIENCE).await;
    let endless = queue(&s, "select pg_sleep(1e9)").await;
    sleeper_of(&s, "1e9").await;
    let job = queue(&s, "select 1").await;
    age(&s).await;
    eventually("the log has it", PATIENCE, async || {
        let log = server.log_tail();
        if log.contains("SQL jobs wait: the server has no background worker for them") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    let (said, healthy, hint) = status(s.client(), "sql jobs").await;
    assert_eq!((said.as_str(), healthy), ("ready: 1", false));
    assert!(
        hint.as_deref().is_some_and(|hint| hint.contains(
            "all 4 of the server are in use. Type: alter system set max_worker_processes = 12"
        )),
        "{hint:?}"
    );
    s.get(&format!("select trax.cancel({endless})")).await;
    assert_eq!(ended(&s, job).await, "completed");
    let (_, healthy, hint) = status(s.client(), "sql jobs").await;
    assert!(healthy && hint.is_none(), "{hint:?}");
}

#[tokio::test]
async fn a_server_without_the_library_says_first_that_it_needs_it() {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .setting("trax.max_sql_workers", "0")
        .start()
        .expect("a server starts");
    let database = server.database("plain").await.expect("a database is made");
    let s = Session::of(&database).await;
    queue(&s, "select 1").await;
    age(&s).await;
    let (_, healthy, hint) = status(s.client(), "sql jobs").await;
    assert!(!healthy);
    assert!(
        hint.as_deref().is_some_and(
            |hint| hint.contains("alter system set shared_preload_libraries = 'trax'")
        ),
        "{hint:?}"
    );
}
