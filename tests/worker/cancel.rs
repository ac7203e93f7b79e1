//! A cancel reaches a running handler at once, with leases whose heartbeats are too rare to deliver
//! it.

use super::{enqueue, obedient, start, state_becomes, worker_at};
use harness::scheduler::{connect, execute, live_database, value};
use harness::{PATIENCE, eventually};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::Database;
use trax_client::{JobId, Worker};

/// Heartbeats are sent every third of the lease.
const LEASE: Duration = Duration::from_secs(3600);

/// A worker whose handler ends only when asked to; it connects without the pooler, which does not
/// forward notifications.
fn waiting(database: &Database) -> Worker {
    worker_at(database.config())
        .lease(LEASE)
        .handle("wait", obedient)
}

/// Waits until this many attempts have begun, as reported by heartbeats.
async fn begun(client: &Client, count: i64) {
    eventually(
        "attempts that have begun",
        PATIENCE,
        async || match value::<i64>(client, "select count(*) from trax.lease where not ahead").await
        {
            n if n == count => Ok(()),
            n => Err(n.to_string()),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_handlers_before_the_next_heartbeat() {
    let database = live_database().await;
    let client = connect(&database).await;
    let workers: Vec<_> = (0..5)
        .map(|_| start(waiting(&database).concurrency(2)))
        .collect();
    let mut jobs: Vec<JobId> = Vec::new();
    for _ in 0..10 {
        jobs.push(enqueue(&client, "wait", ()).await);
    }
    begun(&client, 10).await;
    execute(&client, &format!("select trax.cancel({})", jobs[0])).await;
    state_becomes(&client, jobs[0], "cancelled").await;
    let running = "select count(*) from trax.lease where not cancel_requested";
    assert_eq!(value::<i64>(&client, running).await, 9, "and no other");
    execute(&client, "select trax.cancel_group('default')").await;
    for job in jobs {
        state_becomes(&client, job, "cancelled").await;
    }
    // More jobs than one notification can name.
    for _ in 0..100 {
        enqueue(&client, "many", ()).await;
    }
    let many = worker_at(database.config()).lease(LEASE).concurrency(100);
    let many = many.handle("many", obedient);
    let many = start(many);
    begun(&client, 100).await;
    execute(&client, "select trax.cancel_group('default')").await;
    eventually("the end of all", PATIENCE, async || {
        match value::<i64>(&client, "select count(*) from trax.lease").await {
            0 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    for worker in workers.into_iter().chain([many]) {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_while_the_connection_is_gone_is_heard_on_the_next() {
    let database = live_database().await;
    let client = connect(&database).await;
    let running = start(waiting(&database).name("deaf"));
    let job = enqueue(&client, "wait", ()).await;
    begun(&client, 1).await;
    // In one transaction, so that the worker cannot return before the cancel is visible.
    execute(
        &client,
        &format!(
            "begin; select trax.cancel({job});
             select pg_terminate_backend(pid, 5000) from pg_stat_activity
             where application_name = 'trax worker deaf' and pid <> pg_backend_pid(); commit"
        ),
    )
    .await;
    state_becomes(&client, job, "cancelled").await;
    let again = enqueue(&client, "wait", ()).await;
    begun(&client, 1).await;
    execute(&client, &format!("select trax.cancel({again})")).await;
    state_becomes(&client, again, "cancelled").await;
    running.drain().await;
}
