//! The worker's choice of jobs: no job waits for a slow one, and tasks get their shares.

use super::{run, start, worker};
use harness::scheduler::{connect, value};
use harness::{PATIENCE, database, eventually};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::Database;
use trax_client::{Client as Trax, Context, HandlerResult, JobError, NewJobs, Worker};

async fn enqueue_many(client: &Client, task: &str, inputs: &[u32]) {
    Trax::new(client)
        .enqueue_many(&NewJobs::new(task, inputs))
        .await
        .expect("jobs are enqueued");
}

async fn completed(client: &Client, wanted: i64) {
    eventually(&format!("{wanted} completions"), PATIENCE, async || {
        let sql = "select count(*) from trax.run where state = 'completed'";
        match value::<i64>(client, sql).await {
            seen if seen == wanted => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
}

/// Never ends by itself if its input is 0, and ends at once otherwise.
async fn endless(input: u32, _: Context) -> HandlerResult<()> {
    match input {
        0 => std::future::pending().await,
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_slow_handler_delays_no_other_and_no_outcome() {
    let database = database().await;
    let client = connect(&database).await;
    let mut inputs = vec![1; 300];
    inputs[20] = 0;
    enqueue_many(&client, "t", &inputs).await;
    let slow = worker(&database)
        .concurrency(2)
        .cancel_patience(Duration::ZERO)
        .grace(Duration::ZERO);
    let running = start(slow.handle("t", endless));
    completed(&client, 299).await;
    let sql = "select string_agg(input::text, ' ') from trax.lease";
    assert_eq!(value::<String>(&client, sql).await, "0");
    running.drain().await;
}

#[tokio::test]
async fn jobs_fetched_ahead_of_a_slow_one_go_back_for_others_to_take() {
    let database = database().await;
    let client = connect(&database).await;
    let mut inputs = vec![1; 400];
    inputs[100] = 0;
    enqueue_many(&client, "t", &inputs).await;
    let alone = || {
        let worker = worker(&database).concurrency(1).grace(Duration::ZERO);
        worker.cancel_patience(Duration::ZERO).handle("t", endless)
    };
    let stuck = start(alone());
    eventually("it fetched ahead and is stuck", PATIENCE, async || {
        let sql =
            "select (select count(*) from trax.lease) || ' ' || (select count(*) from trax.run)";
        let seen = value::<String>(&client, sql).await;
        match seen.split_once(' ') {
            Some((leases, "100")) if leases != "1" => Ok(()),
            _ => Err(seen),
        }
    })
    .await;
    let other = start(alone());
    completed(&client, 399).await;
    let sql = "select count(*) from trax.run where attempt > 1";
    assert_eq!(value::<i64>(&client, sql).await, 0, "no attempt was spent");
    stuck.drain().await;
    other.drain().await;
}

/// Returns the order in which jobs began, as one text of their tasks.
async fn order(database: &Database, prepare: impl FnOnce(Worker) -> Worker) -> String {
    let order = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&order);
    let note = move |_: u32, ctx: Context| {
        let noted = Arc::clone(&noted);
        async move {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push_str(ctx.task());
            Ok::<_, JobError>(())
        }
    };
    let worker = worker(database)
        .concurrency(1)
        .prefetch(4)
        .handle("a", note.clone())
        .handle("b", note.clone())
        .handle("c", note);
    run(prepare(worker)).await;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    order.clone()
}

#[tokio::test]
async fn jobs_of_several_tasks_come_by_age_whatever_their_task() {
    let database = database().await;
    let client = connect(&database).await;
    for (task, jobs) in [("b", 3), ("a", 20), ("b", 1), ("c", 2), ("a", 5)] {
        enqueue_many(&client, task, &vec![1; jobs]).await;
    }
    let seen = order(&database, |worker| worker).await;
    assert_eq!(seen, format!("bbb{}bcc{}", "a".repeat(20), "a".repeat(5)));
}

#[tokio::test]
async fn with_turns_a_backlog_of_one_task_does_not_hold_up_the_others() {
    let database = database().await;
    let client = connect(&database).await;
    for (task, jobs) in [("a", 500), ("b", 50), ("c", 1)] {
        enqueue_many(&client, task, &vec![1; jobs]).await;
    }
    let seen = order(&database, Worker::take_turns).await;
    assert_eq!(seen.len(), 551, "all ran");
    let at = |task: char| seen.rfind(task).map_or(0, |at| at + 1);
    assert!(at('c') <= 20, "the one job of c is soon done: {seen}");
    // Half of the jobs that run while b has jobs are b's, apart from the first claims and the last
    // turns.
    assert!((90..=140).contains(&at('b')), "{}: {seen}", at('b'));
}
