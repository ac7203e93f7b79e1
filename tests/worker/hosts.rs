//! A worker with several hosts, one of which accepts writes at a time.

use super::start;
use harness::scheduler::{connect, execute, scheduling, value, violations};
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::Stop;
use trax_client::{Address, Client as Trax, Context, JobError, NewJobs, Worker};

async fn completed(client: &Client, jobs: i64) {
    eventually(&format!("{jobs} completions"), PATIENCE, async || {
        let sql = "select count(*) from trax.run where state = 'completed'";
        match value::<i64>(client, sql).await {
            seen if seen >= jobs => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_two_hosts_goes_over_to_the_one_that_was_promoted() {
    let mut primary = scheduling().start().expect("a server starts");
    let database = primary.database("app").await.expect("a database is made");
    let client = connect(&database).await;
    let standby = Standby::of(&primary, &[]).await;
    let other = standby.connect("app").await;
    Trax::new(&client)
        .enqueue_many(&NewJobs::new("t", &[2; 1500]))
        .await
        .expect("jobs are enqueued");

    // The standby comes first: it accepts connections, but no writes.
    let address = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=app target_session_attrs=read-write",
        standby.port(),
        primary.port()
    );
    let address: Address = address.parse().expect("it is an address");
    // Later jobs wait until the primary has stopped, so that some are left.
    let (open, gate) = tokio::sync::watch::channel(false);
    let begun = Arc::new(AtomicUsize::new(0));
    let work = move |millis: u64, _: Context| {
        let (mut gate, begun) = (gate.clone(), Arc::clone(&begun));
        async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            if begun.fetch_add(1, Ordering::SeqCst) > 600 {
                gate.wait_for(|open| *open).await?;
            }
            Ok::<_, JobError>(())
        }
    };
    let worker = Worker::new(address)
        .without_signals()
        .on_event(|_| ())
        .poll_interval(Duration::from_millis(20))
        .concurrency(4)
        .lease(Duration::from_secs(3))
        .handle("t", work);
    let health = worker.health();
    let running = start(worker);
    completed(&client, 500).await;
    assert_eq!(health.ready(), Ok(()));

    // A fast shutdown first sends all WAL to the standby.
    tokio::task::block_in_place(|| primary.stop(Stop::Fast)).expect("the primary stops");
    eventually("nobody takes writes", PATIENCE, async || {
        match health.ready() {
            Ok(()) => Err("ready".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await;
    open.send_replace(true);
    execute(&other, "select pg_promote(wait => true)").await;
    let sql = "select count(*) from trax.run where state = 'completed'";
    let before: i64 = value(&other, sql).await;
    assert!(before < 1500, "there is something left to do");
    completed(&other, 1500).await;
    assert_eq!(health.ready(), Ok(()));
    let summary = running.drain().await;
    assert_eq!((summary.dead, summary.unreported), (0, 0), "{summary}");
    let twice = "select count(*) - count(distinct job_id) from trax.run where state = 'completed'";
    assert_eq!(value::<i64>(&other, twice).await, 0);
    assert_eq!(violations(&other).await, Vec::<String>::new());
}
