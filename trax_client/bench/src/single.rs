//! A single job at a time: every claim and every completion is a separate round trip and commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::barrier::Barrier;
use super::bench_database::{BenchDatabase, expect, figure, join, spawn};
use super::floor::{self, COMMITTERS};
use super::report::{Figure, Sample, Unit};
use trax_terminal::Failure;

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(
            async || floor::commit(bench, COMMITTERS).await,
            async || measure(bench).await,
        )
        .await?;
    let what = format!(
        "{} jobs, {COMMITTERS} connections, each trax.claim_next of one job and then trax.complete: two commits a job",
        jobs(bench)
    );
    let floor = "one commit of one inserted row a job, over as many connections";
    Ok(figure(Unit::JobsPerSecond, what, floor, rounds))
}

/// Returns a tenth of the bulk size, since each job is much slower.
fn jobs(bench: &BenchDatabase) -> i64 {
    (bench.sizes.jobs / 10).max(COMMITTERS)
}

async fn measure(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = jobs(bench);
    bench.clear().await?;
    bench.load(jobs, "").await?;
    bench.settle_queue().await?;
    let line = Barrier::raise(bench, "trax.work_queue").await?;
    let done = Arc::new(AtomicI64::new(0));
    let mut tasks = Vec::new();
    for number in 0..COMMITTERS {
        let connection = bench.connect().await?;
        tasks.push(spawn(take_each(
            connection,
            number,
            jobs,
            Arc::clone(&done),
        )));
    }
    let begun = line.go(bench, COMMITTERS).await?;
    join(tasks).await?;
    let cost = bench.meter.end(begun).await?;
    bench.expect_completed(jobs).await?;
    Ok(Sample::rate(jobs, cost))
}

async fn take_each(
    connection: Connection,
    number: i64,
    jobs: i64,
    done: Arc<AtomicI64>,
) -> Result<(), Failure> {
    let claim = connection
        .prepare("select job_id, token, input from trax.claim_next(worker => $1)")
        .await?;
    let complete = connection
        .prepare_typed("select trax.complete($1, $2)", &[Type::INT8, Type::UUID])
        .await?;
    let name = format!("bench {number}");
    while done.load(Ordering::Relaxed) < jobs {
        let Some(row) = connection.query_opt(&claim, &[&name]).await? else {
            // Other tasks hold the last jobs.
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let (id, token): (i64, Uuid) = (row.try_get(0)?, row.try_get(1)?);
        let recorded: bool = connection
            .query_one(&complete, &[&id, &token])
            .await?
            .try_get(0)?;
        expect("completions recorded", recorded.into(), 1)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
