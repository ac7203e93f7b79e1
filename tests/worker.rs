//! The Rust worker: handlers, panics, leases, cancels, signals and broken connections.

use harness::process::{Process, Scratch, send_signal};
use harness::scheduler::{
    connect, execute, live_database, live_server, scheduling, value, violations,
};
use harness::{PATIENCE, database, eventually};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::Database;
use trax_client::{
    Cancelled, Client as Trax, Context, HandlerResult, JobError, JobId, JobOptions, NewJob,
    Outcome, Reason, Shutdown, Stopped, Summary, Worker,
};

/// A worker whose events are not the test's output, and that leaves signals alone.
fn worker(database: &Database) -> Worker {
    Worker::new(database.config())
        .without_signals()
        .on_event(|_| ())
        .poll_interval(Duration::from_millis(20))
}

/// A worker that runs in a task of its own until it is told to stop.
struct Running {
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<trax_client::Result<Summary>>,
}

fn start(worker: Worker) -> Running {
    let shutdown = worker.shutdown();
    Running {
        shutdown,
        task: tokio::spawn(worker.run()),
    }
}

impl Running {
    async fn drain(self) -> Summary {
        self.shutdown.drain();
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended
            .expect("it stops in time")
            .expect("it does not panic")
            .expect("it was never refused")
    }
}

async fn run(worker: Worker) -> Summary {
    let ended = tokio::time::timeout(PATIENCE, worker.until_empty().run()).await;
    ended
        .expect("it stops when the queue is empty")
        .expect("it is not refused")
}

async fn enqueue(client: &Client, task: &str, input: impl Serialize) -> JobId {
    Trax::new(client)
        .enqueue(&NewJob::new(task, input))
        .await
        .expect("a job is enqueued")
}

/// `state failure_kind error` of the runs of a job, in order.
async fn runs(client: &Client, job: JobId) -> Vec<String> {
    let sql = "select concat_ws(' ', state, failure_kind, error) from trax.run where job_id = $1 order by attempt";
    let rows = client
        .query(sql, &[&job.0])
        .await
        .expect("the query is right");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn state_becomes(client: &Client, job: JobId, wanted: &str) {
    eventually(&format!("job {job} {wanted}"), PATIENCE, async || {
        let rows = client
            .query("select state from trax.job where job_id = $1", &[&job.0])
            .await;
        let rows = rows.map_err(|error| format!("{error:?}"))?;
        match rows.first().map(|row| row.get::<_, String>(0)) {
            Some(state) if state == wanted => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
}

#[derive(Deserialize)]
struct Order {
    item: String,
    count: u32,
}

#[derive(Serialize)]
struct Bill {
    total: u32,
}

async fn bill(order: Order, _: Context) -> HandlerResult<Bill> {
    match order.item.as_str() {
        "tea" => Ok(Bill {
            total: order.count * 3,
        }),
        other => Err(JobError::permanent(format!("there is no {other}"))),
    }
}

#[tokio::test]
async fn a_typed_handler_gets_its_input_and_its_output_is_kept() {
    let database = database().await;
    let client = connect(&database).await;
    let good = enqueue(
        &client,
        "bill",
        serde_json::json!({"item": "tea", "count": 2}),
    )
    .await;
    let unknown = enqueue(
        &client,
        "bill",
        serde_json::json!({"item": "gold", "count": 2}),
    )
    .await;
    let unfit = enqueue(&client, "bill", "not an order").await;
    let foreign = enqueue(&client, "somebody.elses", 1).await;
    let summary = run(worker(&database).name("biller").handle("bill", bill)).await;
    assert_eq!(
        (summary.completed, summary.dead, summary.retrying),
        (1, 1, 1)
    );

    let sql = "select worker || ' ' || output::text from trax.run where state = 'completed'";
    assert_eq!(value::<String>(&client, sql).await, "biller {\"total\": 6}");
    assert_eq!(runs(&client, good).await, ["completed"]);
    assert_eq!(
        runs(&client, unknown).await,
        ["failed error there is no gold"]
    );
    let said = runs(&client, unfit).await.join("");
    assert!(
        said.starts_with("failed error the input does not fit this handler"),
        "{said}"
    );
    let sql = "select max_retries is null and attempts = 0 from trax.work_queue where task = 'somebody.elses'";
    assert!(
        value::<bool>(&client, sql).await,
        "job {foreign} was not touched"
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

async fn careless(input: u32, _: Context) -> HandlerResult<u32> {
    assert!(input != 13, "thirteen brings bad luck");
    Ok(input)
}

#[tokio::test]
async fn a_panic_fails_its_own_attempt_and_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    let unlucky = enqueue(&client, "t", 13).await;
    for input in 0..10 {
        enqueue(&client, "t", input).await;
    }
    let summary = run(worker(&database).concurrency(3).handle("t", careless)).await;
    assert_eq!((summary.completed, summary.retrying), (10, 1));
    let said = runs(&client, unlucky).await.join("");
    assert!(
        said.starts_with("failed error") && said.contains("thirteen brings bad luck"),
        "{said}"
    );
    let sql = "select count(*) from trax.run where state = 'completed'";
    assert_eq!(value::<i64>(&client, sql).await, 10);
}

#[tokio::test]
async fn never_more_handlers_run_than_the_concurrency_allows() {
    let database = database().await;
    let client = connect(&database).await;
    Trax::new(&client)
        .enqueue_many("t", &[1; 60], &JobOptions::new())
        .await
        .expect("jobs are enqueued");
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |_: u32, _: Context| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, JobError>(())
            }
        }
    };
    let summary = run(worker(&database).concurrency(5).handle("t", handler)).await;
    assert_eq!(summary.completed, 60);
    assert_eq!(most.load(Ordering::SeqCst), 5);
}

/// The lease of the tests below; schedulers reap 20 times in it.
const LEASE: Duration = Duration::from_millis(1000);

async fn hasty_database() -> Database {
    let database = live_database().await;
    let client = connect(&database).await;
    let sql = format!(
        "alter database {} set trax.tick_interval = '50 ms'",
        database.name()
    );
    execute(&client, &sql).await;
    database
}

#[tokio::test]
async fn heartbeats_keep_a_job_that_takes_longer_than_its_lease() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "slow", 1).await;
    let slow = async |_: u32, ctx: Context| {
        tokio::select! {
            () = tokio::time::sleep(LEASE * 3) => Ok(()),
            reason = ctx.cancelled() => Err(JobError::permanent(format!("{reason:?}"))),
        }
    };
    let summary = run(worker(&database)
        .lease(LEASE)
        .handle("slow", move |i, c| slow(i, c)))
    .await;
    assert_eq!(summary.completed, 1);
    assert_eq!(runs(&client, job).await, ["completed"]);
}

#[tokio::test]
async fn a_handler_that_blocks_its_thread_for_three_leases_keeps_the_lease() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "block", 1).await;
    // This test's runtime has one thread: while it is blocked, nothing else of the worker runs on it.
    let block = |_: u32, _: Context| async {
        std::thread::sleep(LEASE * 3);
        Ok::<_, JobError>(())
    };
    let summary = run(worker(&database).lease(LEASE).handle("block", block)).await;
    assert_eq!(summary.completed, 1);
    assert_eq!(runs(&client, job).await, ["completed"]);
}

/// Waits until it is asked to stop, and tells why.
async fn obedient(_: serde_json::Value, ctx: Context) -> HandlerResult<Outcome> {
    let reason = ctx.cancelled().await;
    Err(JobError::new(format!("stopped: {reason:?}")))
}

#[tokio::test]
async fn a_cancel_reaches_the_handler_and_the_job_ends_as_cancelled() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let running = start(worker(&database).lease(LEASE).handle("t", obedient));
    state_becomes(&client, job, "in_progress").await;
    let said = Trax::new(&client)
        .cancel(job)
        .await
        .expect("a job can be cancelled");
    assert_eq!(said, Cancelled::Requested);
    state_becomes(&client, job, "cancelled").await;
    let summary = running.drain().await;
    assert_eq!((summary.cancelled, summary.completed), (1, 0));
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.dead_letter").await,
        0
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_handler_that_does_not_obey_a_cancel_is_dropped() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let deaf = |_: u32, _: Context| std::future::pending::<HandlerResult<()>>();
    let deaf = worker(&database)
        .lease(LEASE)
        .cancel_patience(Duration::from_millis(100))
        .handle("t", deaf);
    let running = start(deaf);
    state_becomes(&client, job, "in_progress").await;
    Trax::new(&client)
        .cancel(job)
        .await
        .expect("a job can be cancelled");
    state_becomes(&client, job, "cancelled").await;
    assert_eq!(running.drain().await.cancelled, 1);
}

#[tokio::test]
async fn a_handler_whose_lease_was_taken_away_is_told_so() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let (tell, told) = std::sync::mpsc::channel();
    let handler = move |_: u32, ctx: Context| {
        let tell = tell.clone();
        async move {
            let first = ctx.attempt() == 1;
            if first && tell.send(ctx.cancelled().await).is_err() {}
            Ok::<_, JobError>(())
        }
    };
    let running = start(worker(&database).lease(LEASE).handle("t", handler));
    state_becomes(&client, job, "in_progress").await;
    // As if no heartbeat had come for a lease.
    execute(
        &client,
        "update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s';
        select * from trax.tick()",
    )
    .await;
    state_becomes(&client, job, "completed").await;
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Reason::LeaseLost));
    running.drain().await;
    let ended = runs(&client, job).await;
    assert_eq!(
        ended,
        [
            "failed lease_expired the lease expired without a heartbeat",
            "completed"
        ]
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

/// Writes and completes in one transaction; the first attempt of an even input is rolled back.
async fn pay(amount: i32, ctx: Context<Database>) -> HandlerResult<Outcome> {
    let mut client = ctx.state().connect().await?;
    let tx = client.transaction().await?;
    tx.execute("insert into payment (amount) values ($1)", &[&amount])
        .await?;
    if !Trax::new(&tx)
        .complete(ctx.job_id(), ctx.token(), &amount)
        .await?
    {
        return Err(JobError::new("the lease is lost"));
    }
    if amount % 2 == 0 && ctx.attempt() == 1 {
        tx.rollback().await?;
        return Err(JobError::new("changed my mind").retry_in(Duration::ZERO));
    }
    tx.commit().await?;
    Ok(Outcome::Recorded)
}

#[tokio::test]
async fn a_completion_in_the_handlers_own_transaction_has_its_effect_exactly_once() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, "create table payment (amount int)").await;
    for amount in 0..10 {
        enqueue(&client, "pay", amount).await;
    }
    let worker = Worker::with_state(database.config(), database.clone())
        .without_signals()
        .on_event(|_| ())
        .poll_interval(Duration::from_millis(20))
        .handle("pay", pay);
    let shutdown = worker.shutdown();
    let task = tokio::spawn(worker.run());
    eventually("ten payments", PATIENCE, async || {
        match value::<i64>(
            &client,
            "select count(*) from trax.run where state = 'completed'",
        )
        .await
        {
            10 => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
    shutdown.drain();
    let summary = task
        .await
        .expect("it does not panic")
        .expect("it is not refused");
    assert_eq!(
        (summary.completed, summary.retrying, summary.lost),
        (10, 5, 0)
    );
    let sql = "select string_agg(amount::text, ' ' order by amount) from payment";
    assert_eq!(value::<String>(&client, sql).await, "0 1 2 3 4 5 6 7 8 9");
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_snoozed_job_comes_back_without_having_spent_an_attempt() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let handler = |_: u32, _: Context| async {
        Ok::<_, JobError>(Outcome::Snooze(Duration::from_secs(3600)))
    };
    assert_eq!(
        run(worker(&database).handle("t", handler)).await.released,
        1
    );
    let sql = "select attempts || ' ' || waits_for from trax.work_queue";
    assert_eq!(value::<String>(&client, sql).await, "0 time");
    assert_eq!(runs(&client, job).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_survives_a_restart_of_the_server_under_load() {
    let mut server = scheduling().start().expect("a server starts");
    let database = server
        .database("restarted")
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    Trax::new(&client)
        .enqueue_many("t", &[1; 3000], &JobOptions::new())
        .await
        .expect("jobs are enqueued");
    let running = {
        let work = |_: u32, _: Context| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, JobError>(())
        };
        start(
            worker(&database)
                .concurrency(8)
                .lease(Duration::from_secs(3))
                .handle("t", work),
        )
    };
    for done in [300, 1500] {
        let client = connect(&database).await;
        eventually("some completions", PATIENCE, async || {
            match value::<i64>(&client, "select count(*) from trax.run").await {
                seen if seen >= done => Ok(()),
                seen => Err(format!("{seen}")),
            }
        })
        .await;
        drop(client);
        server.restart().expect("the server restarts");
    }
    let client = connect(&database).await;
    eventually("every completion", PATIENCE, async || {
        let sql = "select count(*) from trax.job where state = 'completed'";
        match value::<i64>(&client, sql).await {
            3000 => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
    let summary = running.drain().await;
    assert_eq!((summary.dead, summary.untold), (0, 0), "{summary}");
    let sql = "select count(*) from trax.run where state = 'completed'";
    assert_eq!(value::<i64>(&client, sql).await, 3000);
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_whose_sessions_are_terminated_goes_on() {
    let database = database().await;
    let client = connect(&database).await;
    let seen = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let events = Arc::clone(&seen);
    let echo = |_: u32, _: Context| async { Ok::<_, JobError>(()) };
    let named = Worker::new(database.config())
        .without_signals()
        .name("cut")
        .poll_interval(Duration::from_millis(20))
        .on_event(move |event| {
            let mut events = events
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            events.insert(event.to_string().contains("works again"));
        })
        .handle("t", echo);
    let running = start(named);
    let job = enqueue(&client, "t", 1).await;
    state_becomes(&client, job, "completed").await;
    for _ in 0..5 {
        execute(
            &client,
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'trax worker cut'",
        )
        .await;
        let job = enqueue(&client, "t", 1).await;
        state_becomes(&client, job, "completed").await;
    }
    running.drain().await;
    let seen = seen
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(
        seen.iter().copied().collect::<Vec<_>>(),
        [false, true],
        "trouble, and its end, are told"
    );
}

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
    let summary = Worker::new(config.parse().expect("the parent gives a configuration"))
        .grace(Duration::from_millis(1500))
        .poll_interval(Duration::from_millis(20))
        .concurrency(2)
        .handle("until.file", until_file)
        .handle("obedient", obedient)
        .handle("deaf", |_: u32, _: Context| {
            std::future::pending::<HandlerResult<()>>()
        })
        .run()
        .await
        .expect("the worker is not refused");
    println!("the child ended: {:?}, {summary}", summary.stopped);
}

fn child_worker(database: &Database) -> Process {
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
        "worker::a_child_worker",
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

#[tokio::test]
async fn a_drained_worker_with_nothing_left_to_do_says_so() {
    let database = database().await;
    let running = start(worker(&database).handle("t", careless));
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    state_becomes(&client, job, "completed").await;
    assert_eq!(running.drain().await.stopped, Stopped::Drained);
}

#[tokio::test]
async fn a_worker_in_a_database_without_the_extension_says_so_at_once() {
    let plain = harness::scheduler::new_name("no_extension");
    let database = harness::shared_server()
        .plain_database(&plain)
        .await
        .expect("a database is made");
    let refused = worker(&database).handle("t", careless).run().await;
    let error = refused.expect_err("there is nothing to claim from");
    assert!(
        matches!(error, trax_client::Error::NotInstalled(_)),
        "{error:?}"
    );
}
