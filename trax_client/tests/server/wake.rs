//! Waking up: the delay until an idle worker starts a job, and its behavior without notifications.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use trax_client::testkit::{Database, Options, Server};
use trax_client::tokio_postgres::Client as Connection;
use trax_client::{
    ClaimOptions, Client, Context, Error, JobOptions, NewJob, NewJobs, Shutdown, Stopped, Summary,
    Token, Worker,
};

use super::{DEADLINE, Result, until};

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

async fn database(options: Options) -> Result<(Server, Database, Connection)> {
    let server = options.fast().start()?;
    let database = server.database("wake").await?;
    let connection = database.connect().await?;
    Ok((server, database, connection))
}

/// An idle worker that reports when it starts a job.
struct Idle<'a> {
    connection: &'a Connection,
    started: mpsc::UnboundedReceiver<Instant>,
    shutdown: Shutdown,
    run: tokio::task::JoinHandle<trax_client::Result<Summary>>,
    jobs: i64,
}

impl<'a> Idle<'a> {
    /// Starts with a job that its first claim finds, and returns after that job.
    async fn begin(
        database: &Database,
        connection: &'a Connection,
        poll: Duration,
    ) -> Result<Self> {
        let (tell, started) = mpsc::unbounded_channel();
        let worker = Worker::new(database.config())
            .without_signals()
            .poll_interval(poll)
            .on_event(|event| println!("{event}"))
            .handle("now", move |(): (), _: Context| {
                let told = tell.send(Instant::now());
                async move { Ok(told?) }
            });
        Client::new(connection)
            .enqueue(&NewJob::new("now", ()))
            .await?;
        let mut idle = Idle {
            connection,
            shutdown: worker.shutdown(),
            run: tokio::spawn(worker.run()),
            started,
            jobs: 0,
        };
        idle.ended().await?;
        Ok(idle)
    }

    /// Waits until the worker is idle again; returns the time at which the last job started.
    async fn ended(&mut self) -> Result<Instant> {
        let started = tokio::time::timeout(DEADLINE, self.started.recv()).await?;
        self.jobs += 1;
        let recorded = format!("select count(*) = {} from trax.run", self.jobs);
        until(self.connection, &recorded).await?;
        until(self.connection, "select count(*) = 0 from trax.lease").await?;
        Ok(started.ok_or("the worker has ended")?)
    }

    /// Returns the time from just before a job is enqueued to its start.
    async fn delay(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        Client::new(self.connection)
            .enqueue(&NewJob::new("now", ()))
            .await?;
        Ok(self.ended().await?.duration_since(begun))
    }

    async fn end(self) -> Result {
        self.shutdown.drain();
        let summary = tokio::time::timeout(DEADLINE, self.run).await???;
        assert_eq!(summary.stopped, Stopped::Drained);
        assert_eq!(i64::try_from(summary.completed)?, self.jobs, "{summary}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_starts_a_job_as_soon_as_it_is_enqueued() -> Result {
    let (_server, database, connection) =
        database(Server::options().setting("trax.tick_interval", "1h")).await?;
    // A new database gets its scheduler, which sends the notifications, a moment later.
    let scheduler = "select exists (select from pg_stat_activity \
                     where backend_type = 'trax scheduler' and datname = current_database())";
    until(&connection, scheduler).await?;
    let mut idle = Idle::begin(&database, &connection, NEVER).await?;
    let mut delays = Vec::new();
    for _ in 0..20 {
        delays.push(idle.delay().await?);
    }
    println!("enqueued to started: {delays:?}");
    // No poll or cycle occurs in that time; on a busy machine some starts take longer.
    let soon = delays.iter().min();
    assert!(soon < Some(&Duration::from_millis(100)), "{delays:?}");
    let sql = "select query from pg_stat_activity \
               where application_name like 'trax worker%' and query like '%claim%'";
    let last: String = connection.query_one(sql, &[]).await?.get(0);
    assert!(last.contains("trax.complete_and_claim("), "{last}");
    idle.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_preloading_an_idle_worker_polls() -> Result {
    let options = Server::options().not_preloaded();
    let (_server, database, connection) = database(options).await?;
    let mut idle = Idle::begin(&database, &connection, Duration::from_millis(200)).await?;
    for _ in 0..3 {
        idle.delay().await?;
    }
    idle.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_whose_connection_broke_hears_of_work_again() -> Result {
    let (_server, database, connection) = database(Server::options()).await?;
    let mut idle = Idle::begin(&database, &connection, NEVER).await?;
    let claims = "select pid from pg_stat_activity \
                  where application_name like 'trax worker%' and query like '%claim%'";
    let pid: i32 = connection.query_one(claims, &[]).await?.get(0);
    connection
        .execute("select pg_terminate_backend($1)", &[&pid])
        .await?;
    let again = format!(
        "select exists ({claims} and pid <> {pid} and state = 'idle') \
         and not exists (select from pg_stat_activity where pid = {pid})"
    );
    until(&connection, &again).await?;
    idle.delay().await?;
    idle.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_is_refused_holds_up_no_other_completion() -> Result {
    let (_server, database, connection) = database(Server::options()).await?;
    let options = JobOptions::new().max_retries(0);
    Client::new(&connection)
        .enqueue_many(&NewJobs::new("size", &[1, 2 << 20, 2]).with(options))
        .await?;
    let summary = Worker::new(database.config())
        .without_signals()
        .handle("size", |size: usize, _: Context| async move {
            Ok("x".repeat(size))
        })
        .until_empty()
        .run()
        .await?;
    assert_eq!((summary.completed, summary.dead), (2, 1), "{summary}");
    Ok(())
}

#[tokio::test]
async fn completing_and_claiming_reports_what_was_recorded_and_what_was_taken() -> Result {
    let options = Server::options().not_preloaded();
    let (_server, _database, connection) = database(options).await?;
    let client = Client::new(&connection);
    let jobs = client
        .enqueue_many(&NewJobs::new("step", &[1, 2, 3]))
        .await?;
    let two = ClaimOptions::new().max_jobs(2).tasks(["step"]);
    let (none, first) = client.complete_and_claim(&[], Vec::new(), &two).await?;
    assert!(none.is_empty());
    assert_eq!(first.len(), 2);
    let stale = (first[1].job_id, Token(uuid::Uuid::nil()));
    let (recorded, taken) = client
        .complete_and_claim(
            &[(first[0].job_id, first[0].token), stale],
            vec![Some(serde_json::Value::from("done").into()), None],
            &two,
        )
        .await?;
    assert_eq!(recorded, [first[0].job_id]);
    let taken: Vec<_> = taken.iter().map(|job| job.job_id).collect();
    assert_eq!(taken, [jobs[2]]);
    let output = "select output #>> '{}' from trax.run";
    let output: String = connection.query_one(output, &[]).await?.get(0);
    assert_eq!(output, "done");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_work_ends_when_a_job_is_committed() -> Result {
    let (_server, database, connection) = database(Server::options()).await?;
    let waiter = database.connect().await?;
    let client = Client::new(&waiter);
    // The claim has read all earlier work.
    assert!(client.claim(&ClaimOptions::new()).await?.is_empty());
    let wait = tokio::spawn(async move {
        let waited = Client::new(&waiter).wait_for_work(Some(NEVER)).await;
        waited.map(|()| waiter)
    });
    let waits = "select count(*) = 1 from pg_stat_activity \
                 where query like 'call trax.wait_for_work%' and wait_event_type = 'Extension'";
    until(&connection, waits).await?;
    Client::new(&connection)
        .enqueue(&NewJob::new("now", ()))
        .await?;
    let waiter = tokio::time::timeout(DEADLINE, wait).await???;
    let claimed = Client::new(&waiter).claim(&ClaimOptions::new()).await?;
    assert_eq!(claimed.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_wait_for_work_is_refused_in_a_transaction_and_finds_work_without_preloading() -> Result {
    let options = Server::options().not_preloaded();
    let (_server, _database, mut connection) = database(options).await?;
    let client = Client::new(&connection);
    client.enqueue(&NewJob::new("now", ())).await?;
    let wait = client.wait_for_work(Some(NEVER));
    tokio::time::timeout(Duration::from_secs(60), wait).await??;
    let transaction = connection.transaction().await?;
    let refused = Client::new(&transaction).wait_for_work(Some(NEVER)).await;
    assert!(matches!(refused, Err(Error::WrongState(_))), "{refused:?}");
    Ok(())
}
