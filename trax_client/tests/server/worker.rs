//! The worker against a real server: the actions of handlers, and the outcomes of their jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use trax_client::testkit::{Database, Server, Stop};
use trax_client::{
    Client, Context, HandlerResult, JobError, JobId, JobOptions, NewJob, NewJobs, Outcome, Reason,
    Stopped, Summary, Worker,
};

use super::{DEADLINE, Result};

/// A worker that is delayed by less than two seconds keeps this lease.
const LEASE: Duration = Duration::from_secs(3);

async fn database() -> Result<(Server, Database)> {
    let server = Server::options().fast().start()?;
    let database = server.database("work").await?;
    Ok((server, database))
}

fn worker(database: &Database) -> Worker {
    Worker::new(database.config())
        .without_signals()
        .concurrency(4)
        .lease(LEASE)
        .poll_interval(Duration::from_millis(20))
        .grace(Duration::from_secs(30))
        .cancel_patience(Duration::from_millis(200))
        .on_event(|event| println!("{event}"))
}

async fn finished(run: tokio::task::JoinHandle<trax_client::Result<Summary>>) -> Result<Summary> {
    Ok(tokio::time::timeout(DEADLINE, run).await???)
}

/// Waits until `sql` returns true.
async fn until(database: &Database, sql: &str) -> Result {
    let connection = database.connect().await?;
    super::until(&connection, sql).await
}

/// Returns `attempt state error` of each run of a job.
async fn runs(database: &Database, job: JobId) -> Result<Vec<String>> {
    let connection = database.connect().await?;
    let sql = "select attempt || ' ' || state || coalesce(' ' || error, '') from trax.run \
               where job_id = $1 order by attempt";
    let rows = connection.query(sql, &[&job.0]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_end_reaches_the_server() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let client = Client::new(&connection);
    let add = |task: &'static str| {
        let options = JobOptions::new().max_retries(1);
        let job = NewJob::new(task, json!({"n": 1})).with(options);
        let client = &client;
        async move { client.enqueue(&job).await }
    };
    let (fine, bad, panics, broken) = (
        add("fine").await?,
        add("bad").await?,
        add("panics").await?,
        add("broken").await?,
    );
    let summary = worker(&database)
        .handle("fine", |input: Value, _: Context| async move { Ok(input) })
        .handle("bad", |_: Value, _: Context| async move {
            Err::<(), _>(JobError::permanent("no good"))
        })
        .handle("panics", |_: Value, ctx: Context| async move {
            assert!(ctx.attempt() > 9, "too early");
            Ok(())
        })
        .handle("broken", |_: Vec<i32>, _: Context| async move { Ok(()) })
        .until_empty()
        .run()
        .await?;
    assert_eq!(summary.stopped, Stopped::Empty);
    assert_eq!(
        (summary.completed, summary.retrying, summary.dead),
        (1, 2, 1),
        "{summary}"
    );
    assert_eq!(runs(&database, fine).await?, ["1 completed"]);
    assert_eq!(runs(&database, bad).await?, ["1 failed no good"]);
    assert_eq!(
        runs(&database, panics).await?,
        ["1 failed panicked: too early"]
    );
    assert!(runs(&database, broken).await?[0].contains("does not fit"));
    assert!(client.check().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_handler_that_blocks_the_runtime_keeps_its_lease() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let job = Client::new(&connection)
        .enqueue(&NewJob::new("block", ()))
        .await?;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let summary = worker(&database)
        .handle("block", move |_: Value, _: Context| {
            let ended = Arc::clone(&ended);
            async move {
                let ended = ended
                    .lock()
                    .map_err(|error| JobError::new(error.to_string()))?;
                // Blocks the runtime's only thread until three leases have passed.
                ended.recv_timeout(DEADLINE)?;
                Ok(())
            }
        })
        .until_empty()
        .run();
    let reaper = tokio::task::spawn_blocking({
        let database = database.clone();
        move || {
            tick_for_three_leases(&database)?;
            end.send(()).map_err(|error| error.to_string())
        }
    });
    let summary = summary.await?;
    reaper.await??;
    assert_eq!((summary.completed, summary.lost), (1, 0), "{summary}");
    assert_eq!(runs(&database, job).await?, ["1 completed"]);
    Ok(())
}

/// Runs cycles from a separate runtime until the only attempt is three leases old, by the
/// server's clock.
fn tick_for_three_leases(database: &Database) -> std::result::Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let runtime = tokio::runtime::Runtime::new().map_err(|error| told(&error))?;
    runtime.block_on(async {
        let connection = database.connect().await.map_err(|error| told(&error))?;
        let sql = "select coalesce((select extract(epoch from now() - started_at)::float8 from trax.lease), -1)";
        let begun = Instant::now();
        let mut age = -1.0;
        while age < 3.0 * LEASE.as_secs_f64() {
            let cycle = Client::new(&connection).tick().await;
            cycle.map_err(|error| told(&error))?;
            let row = connection.query_one(sql, &[]).await;
            age = row.map_err(|error| told(&error))?.get::<_, f64>(0);
            if begun.elapsed() > DEADLINE {
                return Err(format!("the attempt is {age} s old"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_learns_it_and_ends_as_cancelled() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let client = Client::new(&connection);
    let polite = client.enqueue(&NewJob::new("polite", ())).await?;
    let deaf = client.enqueue(&NewJob::new("deaf", ())).await?;
    let heard = Arc::new(AtomicUsize::new(0));
    let ears = Arc::clone(&heard);
    let worker = worker(&database)
        .handle("polite", move |_: Value, ctx: Context| {
            let ears = Arc::clone(&ears);
            async move {
                if ctx.cancelled().await == Reason::Cancelled {
                    ears.fetch_add(1, Ordering::SeqCst);
                }
                Err::<(), _>(JobError::new("stopped"))
            }
        })
        .handle("deaf", |_: Value, _: Context| {
            std::future::pending::<HandlerResult<()>>()
        });
    let shutdown = worker.shutdown();
    let run = tokio::spawn(worker.run());
    until(&database, "select count(*) = 2 from trax.lease").await?;
    client.cancel(polite).await?;
    client.cancel(deaf).await?;
    until(&database, "select count(*) = 0 from trax.lease").await?;
    shutdown.drain();
    let summary = finished(run).await?;
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    assert_eq!(summary.cancelled, 2, "{summary}");
    assert_eq!(runs(&database, polite).await?, ["1 cancelled"]);
    assert_eq!(runs(&database, deaf).await?, ["1 cancelled"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_gives_back_what_does_not_end_without_spending_an_attempt() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let client = Client::new(&connection);
    let endless = client.enqueue(&NewJob::new("endless", ())).await?;
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let worker = worker(&database).grace(Duration::from_millis(100)).handle(
        "endless",
        move |_: Value, _: Context| {
            begins.notify_one();
            std::future::pending::<HandlerResult<()>>()
        },
    );
    let shutdown = worker.shutdown();
    let run = tokio::spawn(worker.run());
    // A lease alone does not say that the handler runs: a stop before its start releases the job
    // and ends as drained.
    tokio::time::timeout(DEADLINE, begun.notified()).await?;
    shutdown.drain();
    let summary = finished(run).await?;
    assert_eq!(
        (summary.stopped, summary.released),
        (Stopped::Released, 1),
        "{summary}"
    );
    assert_eq!(runs(&database, endless).await?, [""; 0]);
    let claimed = client.claim(&trax_client::ClaimOptions::new()).await?;
    assert_eq!(
        claimed.iter().map(|job| job.attempt).collect::<Vec<_>>(),
        [1]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_survive_a_restart_of_the_server() -> Result {
    let (mut server, database) = database().await?;
    let inputs: Vec<i32> = (0..200).collect();
    {
        let connection = database.connect().await?;
        let client = Client::new(&connection);
        client.enqueue_many(&NewJobs::new("slow", &inputs)).await?;
    }
    // All jobs are claimed before the stop and end during it, so that only their outcomes meet the
    // stopped server.
    let (open, gate) = tokio::sync::watch::channel(false);
    let worker = worker(&database)
        .lease(Duration::from_secs(30))
        .concurrency(200)
        .handle("slow", move |n: i32, _: Context| {
            let mut gate = gate.clone();
            async move {
                gate.wait_for(|open| *open).await?;
                Ok(n)
            }
        });
    let shutdown = worker.shutdown();
    let run = tokio::spawn(worker.run());
    until(&database, "select count(*) = 200 from trax.lease").await?;
    tokio::task::block_in_place(|| server.stop(Stop::Fast))?;
    open.send_replace(true);
    let begun = Instant::now();
    // Each handler holds a gate until it ends, and the worker holds one.
    while open.receiver_count() > 1 {
        let left = open.receiver_count();
        assert!(begun.elapsed() < DEADLINE, "{left} have not ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::task::block_in_place(|| server.start())?;
    until(
        &database,
        "select count(*) = 200 from trax.run where state = 'completed'",
    )
    .await?;
    shutdown.drain();
    let summary = finished(run).await?;
    assert_eq!(summary.unreported, 0, "{summary}");
    until(&database, "select count(*) = 0 from trax.lease").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_completes_in_its_own_transaction_and_a_snooze_spends_nothing() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    connection
        .batch_execute("create table effect (job_id bigint)")
        .await?;
    let client = Client::new(&connection);
    let own = client.enqueue(&NewJob::new("own", ())).await?;
    let later = client.enqueue(&NewJob::new("later", ())).await?;
    let state = database.clone();
    let summary = Worker::with_state(database.config(), state)
        .without_signals()
        .handle("own", |_: Value, ctx: Context<Database>| async move {
            let mut connection = ctx.state().connect().await?;
            let tx = connection.transaction().await?;
            tx.execute("insert into effect values ($1)", &[&ctx.job_id().0])
                .await?;
            Client::new(&tx)
                .complete(ctx.job_id(), ctx.token(), &"done")
                .await?;
            tx.commit().await?;
            Ok(Outcome::Recorded)
        })
        .handle("later", |_: Value, _: Context<Database>| async move {
            Ok(Outcome::Snooze(Duration::from_secs(3600)))
        })
        .until_empty()
        .run()
        .await?;
    assert_eq!((summary.completed, summary.released), (1, 1), "{summary}");
    assert_eq!(runs(&database, own).await?, ["1 completed"]);
    assert_eq!(runs(&database, later).await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_over_its_timeout_learns_it_and_fails_as_timed_out() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let client = Client::new(&connection);
    let options = JobOptions::new()
        .timeout(Duration::from_millis(300))
        .max_retries(0);
    client
        .enqueue(&NewJob::new("late", ()).with(options))
        .await?;
    let reasons = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&reasons);
    let worker = worker(&database).handle("late", move |_: Value, ctx: Context| {
        let told = Arc::clone(&told);
        async move {
            let reason = ctx.cancelled().await;
            told.lock()
                .map_err(|error| JobError::new(error.to_string()))?
                .push(reason);
            Err::<(), _>(JobError::new("stopped"))
        }
    });
    let shutdown = worker.shutdown();
    let run = tokio::spawn(worker.run());
    let timed_out = "select count(*) = 1 from trax.run where failure_kind = 'timeout'";
    until(&database, timed_out).await?;
    shutdown.drain();
    finished(run).await?;
    assert_eq!(
        reasons.lock().map(|reasons| reasons.clone()).ok(),
        Some(vec![Reason::Timeout])
    );
    Ok(())
}

/// Takes its time to drop, like a value that stops its children.
struct SlowToGo(Arc<AtomicUsize>);

impl Drop for SlowToGo {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(600));
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_run_ends_only_after_dropped_handlers_are_gone() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let client = Client::new(&connection);
    client
        .enqueue_many(&NewJobs::new("endless", &[1, 2]))
        .await?;
    let (begun, gone) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begin, count) = (Arc::clone(&begun), Arc::clone(&gone));
    let worker =
        worker(&database)
            .grace(Duration::ZERO)
            .handle("endless", move |_: i32, _: Context| {
                let (begin, count) = (Arc::clone(&begin), Arc::clone(&count));
                async move {
                    let _guard = SlowToGo(count);
                    begin.add_permits(1);
                    std::future::pending::<HandlerResult<()>>().await
                }
            });
    let shutdown = worker.shutdown();
    let run = tokio::spawn(worker.run());
    tokio::time::timeout(DEADLINE, begun.acquire_many(2))
        .await??
        .forget();
    shutdown.drain();
    let summary = finished(run).await?;
    assert_eq!(gone.load(Ordering::SeqCst), 2, "{summary}");
    assert_eq!(summary.released, 2, "{summary}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_handler_that_blocks_its_thread_does_not_hold_up_the_end() -> Result {
    let (_server, database) = database().await?;
    let connection = database.connect().await?;
    let client = Client::new(&connection);
    let block = client.enqueue(&NewJob::new("block", ())).await?;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let worker =
        worker(&database)
            .grace(Duration::ZERO)
            .handle("block", move |_: Value, _: Context| {
                let ended = Arc::clone(&ended);
                begins.notify_one();
                async move {
                    let ended = ended
                        .lock()
                        .map_err(|error| JobError::new(error.to_string()))?;
                    // Until the test has finished its checks.
                    tokio::task::block_in_place(|| ended.recv_timeout(DEADLINE))?;
                    Ok(())
                }
            });
    let shutdown = worker.shutdown();
    let run = tokio::spawn(worker.run());
    tokio::time::timeout(DEADLINE, begun.notified()).await?;
    let begun = Instant::now();
    shutdown.drain();
    let summary = finished(run).await?;
    assert!(begun.elapsed() < DEADLINE / 2, "{:?}", begun.elapsed());
    assert_eq!(summary.released, 1, "{summary}");
    assert_eq!(runs(&database, block).await?, [""; 0]);
    end.send(())?;
    Ok(())
}
