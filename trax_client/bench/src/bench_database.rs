//! The fresh database of a scenario: connections, loading in batches, and the order of rounds.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::Address;

use super::meter::Meter;
use super::progress::Progress;
use super::report::{Figure, Round, Sample, Unit};
use super::server::BenchServer;
use super::sizes::Sizes;
use trax_terminal::Failure;
use trax_terminal::address;

/// The task of every job in the bench.
pub(crate) const TASK: &str = "bench";
/// The payload of every job, as SQL that may use n: 80 bytes as jsonb.
const PAYLOAD: &str =
    "jsonb_build_object('n', n, 'to', 'somebody@example.org', 'text', 'eighty bytes')";
/// The number of jobs that one call of a load queues.
const LOAD_BATCH: i64 = 10_000;

/// The tables of jobs and their history, of trax and of the floor.
const CLEARED: [&str; 12] = [
    "trax.work_queue",
    "trax.lease",
    "trax.run",
    "trax.dead_letter",
    "trax.step",
    "trax.signal",
    "trax.need",
    "trax.need_event",
    "trax.graph",
    "trax.graph_job",
    "bench.plain",
    "bench.shape",
];
/// The time limit for the server's background work, some of which runs once a minute.
const DEADLINE: Duration = Duration::from_secs(120);
/// The time limit for the last outcomes.
const SOON: Duration = Duration::from_secs(5);

/// Returns the same payload as text.
pub(crate) fn payload(n: i64) -> String {
    format!(r#"{{"n": {n}, "to": "somebody@example.org", "text": "eighty bytes"}}"#)
}

pub(crate) struct BenchDatabase {
    config: Address,
    pub(crate) sizes: Sizes,
    pub(crate) meter: Meter,
    /// The connection for work that is not measured.
    pub(crate) hand: Connection,
    progress: Progress,
}

impl BenchDatabase {
    pub(crate) async fn open(
        server: &BenchServer,
        sizes: Sizes,
        progress: Progress,
    ) -> Result<Self, Failure> {
        let config = server.config();
        let hand = address::connect(&config).await?.into_client();
        hand.batch_execute(include_str!("bench_database.sql"))
            .await?;
        Ok(BenchDatabase {
            sizes,
            meter: Meter::new(address::connect(&config).await?.into_client()).await?,
            hand,
            config,
            progress,
        })
    }

    pub(crate) fn config(&self) -> Address {
        self.config.clone()
    }

    /// Makes another database, which is dropped with this one.
    pub(crate) async fn another(&self, name: &str) -> Result<Address, Failure> {
        let name = format!("{}_{name}", self.name());
        self.sql(&format!("create database {name} template template0"))
            .await?;
        let mut address = self.config.clone();
        address.dbname(&name);
        Ok(address)
    }

    pub(crate) fn name(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        Ok(address::connect(&self.config).await?.into_client())
    }

    /// Shows the current step.
    pub(crate) fn step(&self, step: &str) {
        self.progress.step(step);
    }

    /// Runs floor and measurement in turn: a warm-up round of both, then the rounds that count.
    pub(crate) async fn rounds(
        &self,
        floor: impl AsyncFn() -> Result<Sample, Failure>,
        measure: impl AsyncFn() -> Result<Sample, Failure>,
    ) -> Result<Vec<Round>, Failure> {
        let mut rounds = Vec::new();
        for number in 0..=self.sizes.rounds {
            self.step(&format!("round {number} of {}, floor", self.sizes.rounds));
            let floor = floor().await?;
            self.step(&format!("round {number} of {}, trax", self.sizes.rounds));
            let measured = measure().await?;
            if number > 0 {
                let floor = Some(floor);
                rounds.push(Round { measured, floor });
            }
        }
        Ok(rounds)
    }

    /// Removes all jobs, and writes a checkpoint, so that full page images do not fall into some
    /// rounds and not into others.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        // Truncated separately, since a cycle of the scheduler may be using several of them.
        for table in CLEARED {
            self.sql(&format!("truncate {table}")).await?;
        }
        self.sql("checkpoint").await
    }

    /// Runs statements for their effect.
    pub(crate) async fn sql(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.hand.batch_execute(sql).await?)
    }

    /// Returns the number that a statement yields.
    pub(crate) async fn number(&self, sql: &str) -> Result<i64, Failure> {
        Ok(self.hand.query_typed_one(sql, &[]).await?.try_get(0)?)
    }

    /// Waits until a statement yields zero.
    pub(crate) async fn wait_for_zero(&self, sql: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.number(sql).await? != 0 {
            if begun.elapsed() > DEADLINE {
                return Err(Failure::new("what was queued did not run"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Queues jobs in batches. `options` are further arguments of `trax.enqueue_many` that may use
    /// `b`, the number of the batch.
    pub(crate) async fn load(&self, jobs: i64, options: &str) -> Result<(), Failure> {
        self.load_by(jobs, LOAD_BATCH, options).await
    }

    /// As [`load`](Self::load), in batches of `set` jobs.
    pub(crate) async fn load_by(&self, jobs: i64, set: i64, options: &str) -> Result<(), Failure> {
        let sql = format!(
            "select count(*)
             from generate_series(0, ($1 - 1) / $2) b
             cross join lateral (
                 select array_agg({PAYLOAD}) as inputs
                 from generate_series(b * $2 + 1, least((b + 1) * $2, $1)) n
             ) i
             cross join lateral trax.enqueue_many('{TASK}', i.inputs{options})"
        );
        let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&jobs, Type::INT8), (&set, Type::INT8)];
        let row = self.hand.query_typed_one(&sql, &arguments).await?;
        expect("jobs queued", row.try_get(0)?, jobs)
    }

    /// Vacuums the queued jobs, so that autovacuum does not start in the middle.
    pub(crate) async fn settle_queue(&self) -> Result<(), Failure> {
        self.sql("vacuum (analyze) trax.work_queue").await
    }

    /// As [`expect_completed`](Self::expect_completed), but waits for the last outcomes.
    pub(crate) async fn expect_completed_soon(&self, jobs: i64) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            match self.expect_completed(jobs).await {
                Err(_) if begun.elapsed() < SOON => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                outcome => return outcome,
            }
        }
    }

    /// Checks that no job is lost and none was done twice: this many jobs, each completed once.
    pub(crate) async fn expect_completed(&self, jobs: i64) -> Result<(), Failure> {
        let sql = "select count(*) from trax.run where final and state = 'completed'";
        expect("runs completed", self.number(sql).await?, jobs)?;
        let sql = "select count(distinct job_id) from trax.run";
        expect("jobs completed", self.number(sql).await?, jobs)?;
        let sql =
            "select (select count(*) from trax.work_queue) + (select count(*) from trax.lease)";
        expect("jobs left", self.number(sql).await?, 0)
    }
}

/// Fails if a number is not the expected one, since a figure must count exactly its jobs.
pub(crate) fn expect(what: &str, seen: i64, expected: i64) -> Result<(), Failure> {
    if seen == expected {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the measurement is invalid: {what}: {seen}, expected {expected}"
    )))
}

/// Runs on a thread of the runtime.
pub(crate) type LoadTask = JoinHandle<Result<(), Failure>>;

pub(crate) fn spawn(work: impl Future<Output = Result<(), Failure>> + Send + 'static) -> LoadTask {
    tokio::spawn(work)
}

/// Waits for all tasks; returns the first failure.
pub(crate) async fn join(tasks: Vec<LoadTask>) -> Result<(), Failure> {
    for task in tasks {
        task.await
            .map_err(|error| Failure::new(error.to_string()))??;
    }
    Ok(())
}

/// Returns the figure of a scenario that has only one.
pub(crate) fn figure(unit: Unit, what: String, floor: &str, rounds: Vec<Round>) -> Vec<Figure> {
    vec![Figure {
        measure: String::new(),
        unit,
        what,
        floor: floor.to_owned(),
        rounds,
    }]
}
