//! A worker behind a transaction pooler, which shares its sessions.

use super::{run, worker_at};
use harness::pooler::Pooler;
use harness::process::run as run_program;
use harness::scheduler::{connect, value, violations};
use harness::{database, shared_server};
use std::process::Command;
use std::time::Duration;
use trax_client::{Client as Trax, Context, JobError, NewJobs};

/// Set for the tests that run behind a pooler; read by `worker_config`.
pub(super) const POOLED: &str = "TRAX_TEST_POOLED";

#[tokio::test]
async fn every_test_of_the_worker_passes_behind_a_transaction_pooler() {
    let mut tests = Command::new("timeout");
    let this = std::env::current_exe().expect("a process knows its program");
    tests.arg("900").arg(this);
    // Except the tests that restart the server or start their own workers.
    tests.args(["worker::", "--test-threads", "4"]);
    for left_out in [
        "pooler::",
        "connection::",
        "signal::",
        "fault::",
        "siege::",
        "health::",
        "hosts::",
        "reach::",
        "language::",
        "python::",
        "node::",
    ] {
        tests.args(["--skip", &format!("worker::{left_out}")]);
    }
    let (code, said, complaint) = run_program(tests.env(POOLED, "1"));
    assert_eq!(code, Some(0), "{said}{complaint}");
    let ran = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(ran >= 15, "{ran} tests ran: {said}");
}

#[tokio::test]
async fn a_fleet_shares_two_connections_of_a_pooler() {
    let pooler = Pooler::of(shared_server(), 2).await;
    let database = database().await;
    let client = connect(&database).await;
    Trax::new(&client)
        .enqueue_many(&NewJobs::new("t", &[1; 500]))
        .await
        .expect("jobs are enqueued");
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(pooler.port())
        .user("postgres")
        .dbname(database.name());
    let members = (0..4).map(|_| {
        let work = |_: u32, _: Context| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, JobError>(())
        };
        tokio::spawn(run(worker_at(config.clone()).handle("t", work)))
    });
    let members: Vec<_> = members.collect();
    let mut completed = 0;
    for member in members {
        let summary = member.await.expect("it does not panic");
        assert_eq!((summary.lost, summary.unreported), (0, 0), "{summary}");
        completed += summary.completed;
    }
    assert_eq!(completed, 500);
    let behind = "select count(*) from pg_stat_activity where datname = current_database() 
                  and pid <> pg_backend_pid() and backend_type = 'client backend'";
    assert!(value::<i64>(&client, behind).await <= 2);
    assert_eq!(violations(&client).await, Vec::<String>::new());
}
