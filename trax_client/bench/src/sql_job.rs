//! SQL jobs: the delay until one begins, and the number of tiny statements completed per second.

use std::time::Duration;

use super::bench_database::{BenchDatabase, expect};
use super::latency::Spread;
use super::report::{Figure, Round, Sample, Unit};
use super::sql_peer::{self, Pgbench};
use trax_terminal::Failure;

/// The numbers of executors for tiny statements: one, and the default maximum.
const EXECUTORS: [i64; 2] = [1, 2];
/// The number of starts without an executor in a round; each starts a process.
const COLD: u32 = 10;
/// The group that holds back statements until they run together.
const GROUP: &str = "statements";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let pgbench = Pgbench::find().await;
    let mut figures = Vec::new();
    for executors in EXECUTORS {
        allow(bench, executors).await?;
        let rounds = bench
            .rounds(
                async || pgbench.commit(bench, executors).await,
                async || drain(bench).await,
            )
            .await?;
        figures.push(Figure {
            measure: format!("tiny by {executors}"),
            unit: Unit::JobsPerSecond,
            what: format!(
                "{} times select 1, executors: {executors}, each with its claim, and its completion in its own transaction",
                jobs(bench)
            ),
            floor: pgbench.what(executors),
            rounds,
        });
    }
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("start, round {number} of {}", bench.sizes.rounds));
        let round = (
            starts(bench, bench.sizes.samples, false).await?,
            starts(bench, COLD, true).await?,
        );
        if number > 0 {
            warm.push(round.0);
            cold.push(round.1);
        }
    }
    for (name, what, spreads) in [
        ("warm", "an executor waits", warm),
        ("cold", "there is no executor", cold),
    ] {
        for (part, percentile) in Spread::PARTS.iter().enumerate() {
            let rounds = spreads.iter().map(|spread| Round {
                measured: Sample::bare(spread.0[part]),
                floor: None,
            });
            figures.push(Figure {
                measure: format!("{name} {percentile}"),
                unit: Unit::Milliseconds,
                what: format!(
                    "trax.enqueue_sql to the claim of its executor, single jobs while {what}"
                ),
                floor: String::new(),
                rounds: rounds.collect(),
            });
        }
    }
    figures.extend(sql_peer::each_minute(bench).await?);
    Ok(figures)
}

/// Allows this many executors, and waits for one of them.
async fn allow(bench: &BenchDatabase, executors: i64) -> Result<(), Failure> {
    bench.clear().await?;
    let name = bench.name();
    bench
        .sql(&format!(
            "alter database {name} set trax.max_sql_workers = {executors}"
        ))
        .await?;
    end_all(bench).await?;
    one(bench).await
}

async fn end_all(bench: &BenchDatabase) -> Result<(), Failure> {
    let sql = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity \
        where backend_type = 'trax executor' and datname = current_database()";
    bench.number(sql).await.map(drop)
}

/// Returns a fiftieth of the bulk size.
fn jobs(bench: &BenchDatabase) -> i64 {
    (bench.sizes.jobs / 50).max(2)
}

async fn drain(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = jobs(bench);
    bench.clear().await?;
    bench
        .sql(&format!(
            "select trax.configure_group('{GROUP}', enabled => false)"
        ))
        .await?;
    let queued = bench
        .number(&format!(
            "select count(trax.enqueue_sql('select 1', group_name => '{GROUP}')) from generate_series(1, {jobs})"
        ))
        .await?;
    expect("jobs queued", queued, jobs)?;
    bench.settle_queue().await?;
    // An executor is running.
    one(bench).await?;
    let begun = bench.meter.begin().await?;
    bench
        .sql(&format!(
            "select trax.configure_group('{GROUP}', enabled => true)"
        ))
        .await?;
    all_have_ended(bench).await?;
    let cost = bench.meter.end(begun).await?;
    bench.expect_completed(jobs + 1).await?;
    Ok(Sample::rate(jobs, cost))
}

/// Returns the delays of single statements, by the server's clock.
async fn starts(bench: &BenchDatabase, count: u32, cold: bool) -> Result<Spread, Failure> {
    bench.clear().await?;
    one(bench).await?;
    for _ in 0..count {
        if cold {
            // Not an executor that is about to end.
            end_all(bench).await?;
        }
        one(bench).await?;
    }
    bench.expect_completed(i64::from(count) + 1).await?;
    let sql = "select greatest(extract(epoch from started_at - queued_at), 0)::float8 from trax.run order by job_id offset 1";
    let rows = bench.connect().await?.query(sql, &[]).await?;
    let times = rows
        .iter()
        .map(|row| Ok(Duration::from_secs_f64(row.try_get(0)?)));
    Ok(Spread::of(times.collect::<Result<_, Failure>>()?))
}

/// Runs one statement.
async fn one(bench: &BenchDatabase) -> Result<(), Failure> {
    bench.sql("select trax.enqueue_sql('select 1')").await?;
    let sql = format!(
        "select (select count(*) from trax.work_queue where group_name <> '{GROUP}') + (select count(*) from trax.lease)"
    );
    bench.wait_for_zero(&sql).await
}

async fn all_have_ended(bench: &BenchDatabase) -> Result<(), Failure> {
    bench
        .wait_for_zero(
            "select (select count(*) from trax.work_queue) + (select count(*) from trax.lease)",
        )
        .await
}
