//! Draining a full queue, with the Rust worker and with plain SQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client as Connection, Row, Statement};
use trax_client::{HandlerResult, Worker};
use uuid::Uuid;

use super::barrier::Barrier;
use super::bench_database::{BenchDatabase, TASK, expect, figure, join, spawn};
use super::enqueue;
use super::floor::{self, DRAIN_BATCH, DRAIN_FLOOR, DRAINERS};
use super::meter::Cost;
use super::report::{Figure, Sample, Unit};
use trax_terminal::Failure;

/// The number of concurrent handlers of one worker, and of jobs prefetched by it: tuned for empty
/// jobs.
const CONCURRENCY: usize = 200;
const PREFETCH: usize = 300;

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(
            async || floor::drain(bench).await,
            async || by_workers(bench).await,
        )
        .await?;
    let what = format!(
        "{} jobs that do nothing, by {DRAINERS} workers of the Rust client in this process ({CONCURRENCY} handlers, {PREFETCH} \
         fetched ahead), whole life with lease and history; from the first claim to the last commit; CPU and WAL with \
         queueing by {}",
        bench.sizes.jobs,
        floor::QUEUE_BATCH,
    );
    Ok(figure(Unit::JobsPerSecond, what, DRAIN_FLOOR, rounds))
}

pub(crate) async fn run_sql(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(
            async || floor::drain(bench).await,
            async || by_sql(bench).await,
        )
        .await?;
    let what = format!(
        "{} jobs by {DRAINERS} connections that call trax.complete_and_claim by {DRAIN_BATCH}: the server alone; CPU and WAL with \
         queueing by {}",
        bench.sizes.jobs,
        floor::QUEUE_BATCH,
    );
    Ok(figure(Unit::JobsPerSecond, what, DRAIN_FLOOR, rounds))
}

/// Removes all jobs, then queues jobs as programs do.
async fn fill(bench: &BenchDatabase) -> Result<Cost, Failure> {
    bench.clear().await?;
    let filled = enqueue::enqueue(bench, &bench.connect().await?, bench.sizes.jobs).await?;
    bench.settle_queue().await?;
    Ok(filled)
}

async fn by_workers(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let filled = fill(bench).await?;
    let line = Barrier::raise(bench, "trax.work_queue").await?;
    let mut tasks = Vec::new();
    for _ in 0..DRAINERS {
        let worker = Worker::new(bench.config())
            .concurrency(CONCURRENCY)
            .prefetch(PREFETCH)
            .without_signals()
            .until_empty()
            .handle(TASK, async |_: Value, _| -> HandlerResult<()> { Ok(()) });
        tasks.push(spawn(async move {
            worker.run().await?;
            Ok(())
        }));
    }
    let begun = line.go(bench, DRAINERS).await?;
    join(tasks).await?;
    let drained = bench.meter.end(begun).await?;
    bench.expect_completed(bench.sizes.jobs).await?;
    Ok(Sample::rate_with(
        bench.sizes.jobs,
        drained,
        filled + drained,
    ))
}

async fn by_sql(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = bench.sizes.jobs;
    let filled = fill(bench).await?;
    let drained = drain_by_sql(bench, jobs).await?;
    bench.expect_completed(jobs).await?;
    Ok(Sample::rate_with(jobs, drained, filled + drained))
}

/// Completes this many waiting jobs.
pub(crate) async fn drain_by_sql(bench: &BenchDatabase, jobs: i64) -> Result<Cost, Failure> {
    let line = Barrier::raise(bench, "trax.work_queue").await?;
    let done = Arc::new(AtomicI64::new(0));
    let mut tasks = Vec::new();
    for number in 0..DRAINERS {
        let drainer = Drainer::new(bench.connect().await?, number).await?;
        tasks.push(spawn(drainer.until(jobs, Arc::clone(&done))));
    }
    let begun = line.go(bench, DRAINERS).await?;
    join(tasks).await?;
    let cost = bench.meter.end(begun).await?;
    expect("jobs completed", done.load(Ordering::Relaxed), jobs)?;
    Ok(cost)
}

/// A connection that completes its jobs and claims more in one call.
pub(crate) struct Drainer {
    connection: Connection,
    statement: Statement,
    name: String,
    ids: Vec<i64>,
    tokens: Vec<Uuid>,
}

impl Drainer {
    pub(crate) async fn new(connection: Connection, number: i64) -> Result<Self, Failure> {
        let sql = format!(
            "select completed_job_id, job_id, token, input
             from trax.complete_and_claim(job_ids => $1, tokens => $2, worker => $3, max_jobs => {DRAIN_BATCH})"
        );
        let types = [Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TEXT];
        Ok(Drainer {
            statement: connection.prepare_typed(&sql, &types).await?,
            connection,
            name: format!("bench {number}"),
            ids: Vec::new(),
            tokens: Vec::new(),
        })
    }

    /// Makes one call; returns the numbers of completed and claimed jobs.
    pub(crate) async fn turn(&mut self) -> Result<(i64, i64), Failure> {
        let completed = self.ids.len() as i64;
        let rows = self
            .connection
            .query(&self.statement, &[&self.ids, &self.tokens, &self.name])
            .await?;
        self.ids.clear();
        self.tokens.clear();
        for row in &rows {
            self.take(row)?;
        }
        let claimed = self.ids.len() as i64;
        expect(
            "completions recorded",
            rows.len() as i64 - claimed,
            completed,
        )?;
        Ok((completed, claimed))
    }

    fn take(&mut self, row: &Row) -> Result<(), Failure> {
        if let Some(id) = row.try_get(1)? {
            self.ids.push(id);
            self.tokens.push(row.try_get(2)?);
        }
        Ok(())
    }

    pub(crate) async fn until(mut self, jobs: i64, done: Arc<AtomicI64>) -> Result<(), Failure> {
        while done.load(Ordering::Relaxed) < jobs {
            let (completed, claimed) = self.turn().await?;
            done.fetch_add(completed, Ordering::Relaxed);
            if claimed == 0 {
                // The other connections hold the remaining jobs, or have just released them.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }
}
