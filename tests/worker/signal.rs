//! Signals to a worker process.

use super::{enqueue, obedient, state_becomes};
use harness::PATIENCE;
use harness::process::{Process, Scratch, send_signal};
use harness::scheduler::{connect, live_database, live_server, value, violations};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use trax_client::testkit::Database;
use trax_client::{Address, Context, HandlerResult, Worker};

/// What a child process of the test below runs: see `a_child_worker`.
const CHILD: &str = "TRAX_TEST_CHILD_WORKER";

/// Ends when the file that its input names exists.
async fn until_file(path: PathBuf, _: Context) -> HandlerResult<()> {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Not a test by itself: the worker process of the tests below.
#[tokio::test]
#[ignore = "other tests start it as a child process"]
async fn a_child_worker() {
    let Ok(config) = std::env::var(CHILD) else {
        return;
    };
    let worker = Worker::new(
        config
            .parse::<Address>()
            .expect("the parent gives a configuration"),
    )
    .grace(Duration::from_millis(1500))
    .poll_interval(Duration::from_millis(20))
    .concurrency(2)
    .handle("until.file", until_file)
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
    // Once it has been polled it obeys signals.
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

pub(super) fn child_worker(database: &Database) -> Process {
    let server = live_server();
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
    let mut child = child_worker(&database);
    state_becomes(&client, quick, "in_progress").await;
    state_becomes(&client, deaf, "in_progress").await;
    // Both places are taken: this one stays in the queue.
    let late = enqueue(&client, "deaf", 2).await;

    send_signal("TERM", child.id());
    std::fs::write(&flag, "").expect("the flag can be set");
    state_becomes(&client, quick, "completed").await;
    let status = child.ends(Duration::from_secs(10)).await;
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
    // Would be drained if the grace period counted.
    let files = Scratch::new("second-signal");
    let job = enqueue(&client, "until.file", files.path().join("never")).await;
    let mut child = child_worker(&database);
    state_becomes(&client, job, "in_progress").await;
    send_signal("INT", child.id());
    send_signal("TERM", child.id());
    let status = child.ends(Duration::from_secs(5)).await;
    assert!(status.success(), "{}", child.output());
    state_becomes(&client, job, "queued").await;
    assert_eq!(
        value::<i32>(&client, "select attempts from trax.work_queue").await,
        0
    );
}
