//! A worker process under stress: the server restarts repeatedly, sessions are terminated, and
//! others hold connections.
//!
//! In the end all jobs are done without help, and the process has not grown. `TRAX_FAULTS=whole` is
//! the long form: ten restarts, a minute of five terminated sessions a second, 300 idle
//! connections.

use super::fault::{all_complete, hasty};
use super::signal::child_of;
use harness::process::{Process, send_signal};
use harness::scheduler::{connect, execute, scheduling, value};
use harness::{PATIENCE, eventually, whole_faults};
use serde::Deserialize;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server, Stop};
use trax_client::{Client as Trax, NewJob, NewJobs};

/// The worker's lease; a claim whose answer is lost delays its jobs by this time.
const LEASE: Duration = Duration::from_secs(2);
/// The allowed growth of the process, due to the allocator.
const GROWTH_KB: u64 = 4096;
/// The duration of a job, in milliseconds.
const NAP: i32 = 2;

/// The report of a worker process: see `vitals` in `signal`.
#[derive(Debug, Deserialize)]
struct Vitals {
    tasks: usize,
    rss_kb: u64,
}

/// A server and database with a scheduler, and a worker process.
struct Siege {
    server: Server,
    database: Database,
    client: Client,
    worker: Process,
    jobs: i64,
}

impl Siege {
    async fn begin(name: &str, connections: u32) -> Self {
        let server = scheduling()
            .setting("synchronous_commit", "on")
            .setting("max_connections", connections.to_string());
        let server = server.start().expect("a server starts");
        let database = server.database(name).await.expect("a database is made");
        let client = connect(&database).await;
        hasty(&database, &client).await;
        let worker = child_of(&server, &database, LEASE, PATIENCE);
        let mut siege = Siege {
            server,
            database,
            client,
            worker,
            jobs: 0,
        };
        // Every code path has run before memory is measured.
        siege.add(1000).await;
        siege.completed(1000).await;
        siege
    }

    async fn add(&mut self, jobs: usize) {
        Trax::new(&self.client)
            .enqueue_many(&NewJobs::new("nap", &vec![NAP; jobs]))
            .await
            .expect("jobs are enqueued");
        self.jobs += jobs as i64;
    }

    /// Waits until this many jobs have completed.
    async fn completed(&self, jobs: i64) {
        eventually(&format!("{jobs} completions"), PATIENCE, async || {
            let sql = "select count(*) from trax.run where state = 'completed'";
            match value::<i64>(&self.client, sql).await {
                seen if seen >= jobs => Ok(()),
                seen => Err(format!("{seen}; it said: {}", self.worker.output())),
            }
        })
        .await;
    }

    async fn vitals(&mut self) -> Vitals {
        let job = Trax::new(&self.client)
            .enqueue(&NewJob::new("vitals", ()))
            .await
            .expect("a job is enqueued");
        self.jobs += 1;
        let sql = format!(
            "select output::text from trax.run where job_id = {job} and state = 'completed'"
        );
        let said = eventually("the vitals", PATIENCE, async || {
            let rows = self.client.query(&sql, &[]).await;
            let rows = rows.map_err(|error| error.to_string())?;
            let row = rows.first().ok_or("no run yet")?;
            Ok(row.get::<_, String>(0))
        })
        .await;
        serde_json::from_str(&said).expect("the worker says what is asked")
    }

    /// Checks that all jobs complete without help, that no lease is left, and that the process has
    /// not grown.
    async fn end(mut self, before: &Vitals) {
        all_complete(&self.client, self.jobs).await;
        let mut after = self.vitals().await;
        // At any moment a connection may be closing, or a thread waking.
        for _ in 0..20 {
            if after.tasks <= before.tasks {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            after = self.vitals().await;
        }
        println!("{} jobs; before: {before:?}, after: {after:?}", self.jobs);
        assert!(after.tasks <= before.tasks, "{before:?} {after:?}");
        assert!(
            after.rss_kb <= before.rss_kb + GROWTH_KB,
            "{before:?} {after:?}"
        );
        send_signal("TERM", self.worker.id());
        let status = self.worker.ends(PATIENCE).await;
        assert!(status.success(), "{}", self.worker.output());
        all_complete(&self.client, self.jobs).await;
        let leases = "select count(*) from trax.lease";
        assert_eq!(value::<i64>(&self.client, leases).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_fast_and_as_after_a_crash_costs_a_worker_neither_jobs_nor_memory() {
    let mut siege = Siege::begin("restarts", 100).await;
    let before = siege.vitals().await;
    let restarts = if whole_faults() { 10 } else { 2 };
    for restart in 0..restarts {
        siege.add(600).await;
        let done = siege.jobs - 400;
        siege.completed(done).await;
        let stop = [Stop::Fast, Stop::Immediate][restart % 2];
        tokio::task::block_in_place(|| siege.server.stop(stop)).expect("the server stops");
        tokio::task::block_in_place(|| siege.server.start()).expect("the server starts again");
        siege.client = connect(&siege.database).await;
    }
    siege.end(&before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_ended_five_a_second_beside_many_idle_ones_cost_a_worker_neither_jobs_nor_memory()
{
    let (time, idle) = match whole_faults() {
        true => (Duration::from_secs(60), 300),
        false => (Duration::from_secs(3), 40),
    };
    // The server has room for the idle connections, the worker, this test, and little more.
    let mut siege = Siege::begin("hunted", idle + 10).await;
    let mut others = Vec::new();
    for _ in 0..idle {
        others.push(connect(&siege.database).await);
    }
    let before = siege.vitals().await;
    // The sessions in this database: two of the worker, and the scheduler.
    execute(
        &siege.client,
        "create view prey as
         select pid from pg_stat_activity
         where datname = current_database()
             and (application_name like 'trax worker %' or backend_type = 'trax scheduler')",
    )
    .await;
    let begun = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    let (mut ended, wanted) = (0, time.as_secs() as i64 * 3);
    // A busy machine may need longer for the same number.
    while begun.elapsed() < time || (ended < wanted && begun.elapsed() < PATIENCE) {
        pace.tick().await;
        siege.add(100).await;
        let end = "select count(pg_terminate_backend(pid)) from (select pid from prey order by random() limit 1) p";
        ended += value::<i64>(&siege.client, end).await;
    }
    println!("{ended} sessions ended in {:?}", begun.elapsed());
    assert!(ended >= wanted, "{ended}");
    assert!(
        others.iter().all(|other| !other.is_closed()),
        "they were left alone"
    );
    siege.end(&before).await;
}
