//! Pruning history: a whole day of finished runs is dropped at once.

use std::time::Instant;

use super::bench_database::{BenchDatabase, TASK, expect, figure};
use super::cycle::run_cycle;
use super::report::{Figure, Sample, Unit};
use trax_terminal::Failure;

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    // Otherwise the scheduler would do it first.
    bench
        .hand
        .query_typed("select trax.pause('bench')", &[])
        .await?;
    bench
        .sql("create table bench.history (like trax.run_default including all)")
        .await?;
    let rounds = bench
        .rounds(
            async || drop_table(bench).await,
            async || cycle(bench).await,
        )
        .await?;
    let runs = bench.sizes.finished;
    let what =
        format!("a cycle that finds a day of {runs} finished runs older than trax.run_retention");
    let floor = "drop of a plain table with the same rows and indexes";
    Ok(figure(Unit::Milliseconds, what, floor, rounds))
}

/// Inserts rows of one day, a month ago.
fn fill(table: &str, runs: i64) -> String {
    format!(
        "insert into {table} (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task,
             group_name, worker, input)
         select n, d.day, d.day, d.day, d.day, 1, 0, true, 'completed', '{TASK}', 'default', 'bench', '{{}}'
         from generate_series(1, {runs}) n
         cross join (select date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' - interval '29.5 days') d (day)"
    )
}

async fn cycle(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench.clear().await?;
    let runs = bench.sizes.finished;
    bench
        .sql("select trax.make_run_partitions(now() - interval '30 days', 1)")
        .await?;
    bench.sql(&fill("trax.run", runs)).await?;
    let elsewhere = bench
        .number("select count(*) from trax.run_default")
        .await?;
    expect("runs without a partition", elsewhere, 0)?;
    bench.sql("checkpoint").await?;
    // A session checks the history once a minute, and a new one at once.
    let connection = bench.connect().await?;
    connection
        .batch_execute("set trax.run_retention = '7 d'")
        .await?;
    let (_, time) = run_cycle(&connection).await?;
    expect(
        "runs left",
        bench.number("select count(*) from trax.run").await?,
        0,
    )?;
    Ok(Sample::bare(time))
}

async fn drop_table(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench
        .sql("create table bench.day (like bench.history including all)")
        .await?;
    bench.sql(&fill("bench.day", bench.sizes.finished)).await?;
    bench.sql("checkpoint").await?;
    let sent = Instant::now();
    bench.sql("drop table bench.day").await?;
    Ok(Sample::bare(sent.elapsed().as_secs_f64() * 1e3))
}
