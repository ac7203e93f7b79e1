//! Signals to a worker process.

use super::{enqueue, obedient, state_becomes};
use harness::PATIENCE;
use harness::process::{Process, Scratch, send_signal};
use harness::scheduler::{connect, live_database, live_server, value, violations};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use trax_client::testkit::{Database, Server};
use trax_client::{Address, Context, HandlerResult, Worker};

/// The database of a test's child process: see `a_child_worker`.
const CHILD: &str = "TRAX_TEST_CHILD_WORKER";
/// The length of its leases in milliseconds.
const CHILD_LEASE: &str = "TRAX_TEST_CHILD_LEASE";

/// The grace period of its handlers after a signal, in milliseconds.
const CHILD_GRACE: &str = "TRAX_TEST_CHILD_GRACE";

/// Ends when the file named by its input exists.
async fn until_file(path: PathBuf, _: Context) -> HandlerResult<()> {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Reports the number of tasks in its runtime, and its memory.
async fn vitals(_: (), _: Context) -> HandlerResult<Value> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let rss = rss.and_then(|rss| rss.split_whitespace().next()?.parse::<u64>().ok());
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    Ok(json!({"tasks": tasks, "rss_kb": rss}))
}

/// The worker process of the tests below, not a test by itself.
#[tokio::test]
#[ignore = "other tests start it as a child process"]
async fn a_child_worker() {
    let Ok(config) = std::env::var(CHILD) else {
        return;
    };
    let lease = std::env::var(CHILD_LEASE).map_or(30_000, |lease| {
        lease.parse().expect("the parent gives a number")
    });
    let grace = std::env::var(CHILD_GRACE)
        .map_or(0, |grace| grace.parse().expect("the parent gives a number"));
    let grace = Duration::from_millis(grace);
    let worker = Worker::new(
        config
            .parse::<Address>()
            .expect("the parent gives a configuration"),
    )
    .grace(grace)
    .poll_interval(Duration::from_millis(20))
    .concurrency(2)
    .lease(Duration::from_millis(lease))
    .handle("until.file", until_file)
    .handle("vitals", vitals)
    .handle("obedient", obedient)
    .handle("nap", |millis: u64, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        HandlerResult::Ok(())
    })
    .handle("deaf", |_: u32, _: Context| {
        std::future::pending::<HandlerResult<()>>()
    })
    .run();
    tokio::pin!(worker);
    // The worker handles signals once it has been polled.
    let ended = tokio::select! {
        biased;
        ended = &mut worker => Some(ended),
        () = std::future::ready(()) => None,
    };
    println!("the child is running");
    let ended = match ended {
        Some(ended) => ended,
        None => worker.await,
    };
    let summary = ended.expect("the worker is not refused");
    println!("the child ended: {:?}, {summary}", summary.stopped);
}

/// A worker process on a database of the live server.
pub(super) fn child_worker(database: &Database, grace: Duration) -> Process {
    child_of(live_server(), database, Duration::from_secs(30), grace)
}

pub(super) fn child_of(
    server: &Server,
    database: &Database,
    lease: Duration,
    grace: Duration,
) -> Process {
    let config = format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
    );
    let mut command = Command::new(std::env::current_exe().expect("a process knows its program"));
    command.args([
        "--exact",
        "worker::signal::a_child_worker",
        "--ignored",
        "--nocapture",
    ]);
    Process::start({
        command.env(CHILD, config);
        command.env(CHILD_LEASE, lease.as_millis().to_string());
        command.env(CHILD_GRACE, grace.as_millis().to_string());
        command
    })
}

#[tokio::test]
async fn sigterm_drains_what_ends_in_time_and_gives_the_rest_back_with_its_attempts() {
    let database = live_database().await;
    let client = connect(&database).await;
    let files = Scratch::new("sigterm");
    let flag = files.path().join("go");
    let quick = enqueue(&client, "until.file", &flag).await;
    let deaf = enqueue(&client, "deaf", 1).await;
    let mut child = child_worker(&database, Duration::from_secs(12));
    state_becomes(&client, quick, "in_progress").await;
    state_becomes(&client, deaf, "in_progress").await;
    // Both slots are taken, so this job stays in the queue.
    let late = enqueue(&client, "deaf", 2).await;

    send_signal("TERM", child.id());
    std::fs::write(&flag, "").expect("the flag can be set");
    state_becomes(&client, quick, "completed").await;
    let status = child.ends(PATIENCE).await;
    assert!(status.success(), "{}", child.output());
    child.says("the child ended: Released", PATIENCE).await;
    for job in [deaf, late] {
        state_becomes(&client, job, "queued").await;
    }
    let sql = "select sum(attempts) from trax.work_queue";
    assert_eq!(value::<i64>(&client, sql).await, 0, "no attempt was spent");
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.run").await,
        1
    );
    let sql = "select count(*) from trax.claim_next(max_jobs => 10) where attempt = 1";
    assert_eq!(
        value::<i64>(&client, sql).await,
        2,
        "they can be claimed at once"
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_second_signal_gives_everything_back_at_once() {
    let database = live_database().await;
    let client = connect(&database).await;
    // If the second signal had no effect, the job would have the whole grace period.
    let files = Scratch::new("second-signal");
    let job = enqueue(&client, "until.file", files.path().join("never")).await;
    let mut child = child_worker(&database, 10 * PATIENCE);
    state_becomes(&client, job, "in_progress").await;
    send_signal("INT", child.id());
    send_signal("TERM", child.id());
    let status = child.ends(PATIENCE).await;
    assert!(status.success(), "{}", child.output());
    state_becomes(&client, job, "queued").await;
    assert_eq!(
        value::<i32>(&client, "select attempts from trax.work_queue").await,
        0
    );
}
