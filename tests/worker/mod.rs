//! The Rust worker: handlers, panics, leases, cancels, signals and broken connections.

mod cancel;
mod connection;
mod fault;
mod fetch;
mod fleet;
mod health;
mod hosts;
mod language;
mod lease;
mod middleware;
mod node;
mod pooler;
mod python;
mod reach;
mod registry;
mod siege;
mod signal;
mod steps;
mod task;
mod trace;
mod trouble;

use harness::pooler::Pooler;
use harness::scheduler::{connect, execute, value, violations};
use harness::{PATIENCE, database, eventually};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};
use tokio_postgres::{Client, Config};
use trax_client::testkit::Database;
use trax_client::{
    Client as Trax, Context, Event, HandlerResult, JobError, JobId, JobOptions, NewJob, NewJobs,
    Outcome, Shutdown, Stopped, Summary, Worker,
};

/// A worker that prints no events and leaves signals alone.
fn worker(database: &Database) -> Worker {
    worker_at(worker_config(database))
}

/// The worker's address of a database: the socket, or a pooler if all these tests run behind one.
fn worker_config(database: &Database) -> Config {
    static PORTS: [OnceLock<u16>; 2] = [OnceLock::new(), OnceLock::new()];
    let mut config = database.config();
    if std::env::var_os(pooler::POOLED).is_none() {
        return config;
    }
    let servers = [harness::shared_server(), harness::scheduler::live_server()];
    let at = servers
        .iter()
        .position(|server| config.get_ports() == [server.port()])
        .expect("a database of one of the two");
    let port = *PORTS[at].get_or_init(|| Pooler::for_ever(servers[at], 3));
    config = Config::new();
    config
        .host("127.0.0.1")
        .port(port)
        .user("postgres")
        .dbname(database.name());
    config
}

fn worker_at(config: Config) -> Worker {
    Worker::new(config)
        .without_signals()
        .on_event(|_| ())
        .poll_interval(Duration::from_millis(20))
}

/// A worker that runs in a separate task until it is stopped.
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

/// Returns `state failure_kind error` of the runs of a job, in order.
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

/// Fails until its last attempt, then returns its number and the time the job was queued.
async fn until_the_last(_: u32, ctx: Context) -> HandlerResult<(i32, u64)> {
    if ctx.attempt() < ctx.max_attempts() {
        return Err(JobError::new("there is another"));
    }
    let queued_at = ctx.queued_at().duration_since(SystemTime::UNIX_EPOCH);
    let queued_at = queued_at.map_err(|_| JobError::new("before 1970"))?;
    Ok((ctx.max_attempts(), queued_at.as_secs()))
}

#[tokio::test]
async fn a_handler_knows_its_last_attempt_and_retries_come_after_the_jobs_own_delay() {
    let database = database().await;
    let client = connect(&database).await;
    let options = JobOptions::new().max_retries(2).retry_delay(Duration::ZERO);
    let job = NewJob::new("t", 1).with(options);
    let job_id = Trax::new(&client).enqueue(&job).await.expect("it is good");
    let summary = run(worker(&database).handle("t", until_the_last)).await;
    assert_eq!((summary.completed, summary.retrying), (1, 2));
    let sql = format!(
        "select output ->> 0 = '3' and (output ->> 1)::int8 = floor(extract(epoch from queued_at))
         from trax.run where final and job_id = {job_id}"
    );
    assert!(value::<bool>(&client, &sql).await);
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
        .enqueue_many(&NewJobs::new("t", &[1; 60]))
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

/// Waits until it is asked to stop, and reports the reason.
async fn obedient(_: serde_json::Value, ctx: Context) -> HandlerResult<Outcome> {
    let reason = ctx.cancelled().await;
    Err(JobError::new(format!("stopped: {reason:?}")))
}

/// Writes and completes in one transaction; rolls back the first attempt if the input is even.
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
    let worker = Worker::with_state(worker_config(&database), database.clone())
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
async fn a_completion_that_was_not_committed_fails_the_attempt() {
    let database = database().await;
    let client = connect(&database).await;
    let mut jobs = Vec::new();
    for commits in [true, false, true, false] {
        jobs.push(enqueue(&client, "t", commits).await);
    }
    let refused = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&refused);
    let worker = Worker::with_state(worker_config(&database), database.clone())
        .without_signals()
        .on_event(move |event| {
            if let Event::Refused { job_id, error } = event {
                let mut heard = heard.lock().expect("no panic");
                heard.push((*job_id, error.clone()));
            }
        })
        .until_empty()
        .handle("t", |commits: bool, ctx: Context<Database>| async move {
            let mut client = ctx.state().connect().await?;
            let tx = client.transaction().await?;
            let trax = Trax::new(&tx);
            trax.complete(ctx.job_id(), ctx.token(), &1).await?;
            match commits {
                true => tx.commit().await?,
                false => tx.rollback().await?,
            }
            HandlerResult::Ok(Outcome::Recorded)
        });
    let ended = tokio::time::timeout(PATIENCE, worker.run()).await;
    let summary = ended.expect("it stops").expect("it is not refused");
    let failed = summary.retrying + summary.dead;
    assert_eq!((summary.completed, failed), (2, 2), "{summary}");
    let error = "the handler returned Outcome::Recorded, but has not completed the job";
    let mut refused = refused.lock().expect("no panic").clone();
    refused.sort_unstable();
    let of = |(job, why): &(JobId, String)| why.starts_with(error).then_some(*job);
    assert_eq!(
        refused.iter().map(of).collect::<Vec<_>>(),
        [Some(jobs[1]), Some(jobs[3])]
    );
    assert_eq!(runs(&client, jobs[0]).await, ["completed"]);
    let run = runs(&client, jobs[1]).await;
    assert!(run.len() == 1 && run[0].contains(error), "{run:?}");
}

#[tokio::test]
async fn a_handler_that_has_completed_its_job_and_returns_a_value_is_told_what_to_return() {
    let database = database().await;
    let client = connect(&database).await;
    let jobs = [true, false].map(|commits| enqueue(&client, "t", commits));
    let [committed, rolled_back] = jobs;
    let (committed, rolled_back) = (committed.await, rolled_back.await);
    let refused = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&refused);
    let worker = Worker::with_state(worker_config(&database), database.clone())
        .without_signals()
        .on_event(move |event| {
            if let Event::Refused { job_id, error } = event {
                let mut heard = heard.lock().expect("no panic");
                heard.push((*job_id, error.clone()));
            }
        })
        .until_empty()
        .handle("t", |commits: bool, ctx: Context<Database>| async move {
            let mut client = ctx.state().connect().await?;
            let tx = client.transaction().await?;
            let trax = Trax::new(&tx);
            trax.complete(ctx.job_id(), ctx.token(), &"recorded")
                .await?;
            match commits {
                true => tx.commit().await?,
                false => tx.rollback().await?,
            }
            HandlerResult::Ok("returned")
        });
    let ended = tokio::time::timeout(PATIENCE, worker.run()).await;
    let summary = ended.expect("it stops").expect("it is not refused");
    assert_eq!((summary.completed, summary.lost), (2, 0), "{summary}");
    let error = "the handler has completed the job itself: return Outcome::Recorded";
    assert_eq!(
        *refused.lock().expect("no panic"),
        [(committed, error.to_owned())]
    );
    for (job, output) in [(committed, "recorded"), (rolled_back, "returned")] {
        let sql = format!("select output #>> '{{}}' from trax.run where job_id = {job}");
        assert_eq!(value::<String>(&client, &sql).await, output);
    }
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

#[tokio::test]
async fn a_handler_cancels_its_own_job_for_a_reason() {
    let database = database().await;
    let client = connect(&database).await;
    let (said, failed) = (
        enqueue(&client, "t", true).await,
        enqueue(&client, "t", false).await,
    );
    let handler = |politely: bool, _: Context| async move {
        match politely {
            true => Ok(Outcome::Cancelled("the order is gone".to_owned())),
            false => Err(JobError::cancelled("so is the shop")),
        }
    };
    // The level worker gives enough rights for it.
    execute(
        &client,
        "create role worker_that_cancels login; select trax.grant_access('worker_that_cancels', 'worker')",
    )
    .await;
    let mut config = worker_config(&database);
    config.user("worker_that_cancels");
    let summary = run(worker_at(config).handle("t", handler)).await;
    assert_eq!((summary.cancelled, summary.lost), (2, 0), "{summary}");
    assert_eq!(runs(&client, said).await, ["cancelled the order is gone"]);
    assert_eq!(runs(&client, failed).await, ["cancelled so is the shop"]);
    let left =
        "select (select count(*) from trax.work_queue) + (select count(*) from trax.dead_letter)";
    assert_eq!(value::<i64>(&client, left).await, 0);
    assert_eq!(violations(&client).await, Vec::<String>::new());
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
