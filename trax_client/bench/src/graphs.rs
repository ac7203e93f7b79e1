//! Graphs and batches: what a job that needs many others costs them, how soon it is ready, and how
//! fast a graph is queued.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::bench_database::{BenchDatabase, TASK, expect, payload};
use super::drain::drain_by_sql;
use super::floor::{DRAIN_BATCH, DRAINERS};
use super::latency::{DEADLINE, FLOOR, Spread, claim_alone};
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

/// The jobs of a graph, and how many layers it has.
const GRAPH: i64 = 10_000;
const LAYERS: i64 = 100;
/// The pause between two looks whether a job is ready.
const LOOK: Duration = Duration::from_millis(1);

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    // The jobs that run after batches are not claimed: no worker takes them for others.
    bench
        .hand
        .query_typed(
            "select trax.configure_group('after', enabled => false)",
            &[],
        )
        .await?;
    let mut figures = drained(bench).await?;
    figures.extend(ready(bench).await?);
    figures.extend(queued(bench).await?);
    Ok(figures)
}

async fn open(bench: &BenchDatabase) -> Result<i64, Failure> {
    bench
        .number("select trax.open_batch('after', group_name => 'after')")
        .await
}

/// Waits until the job of a sealed batch is ready; returns since when.
async fn is_ready(bench: &BenchDatabase, batch: i64) -> Result<Instant, Failure> {
    let sql = format!(
        "select count(*) from trax.work_queue where job_id = {batch} and waits_for is null"
    );
    let begun = Instant::now();
    while bench.number(&sql).await? == 0 {
        if begun.elapsed() > DEADLINE {
            return Err(Failure::new(
                "all jobs of a batch have ended and its job is not ready",
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(Instant::now())
}

async fn drained(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let jobs = bench.sizes.jobs;
    let rounds = bench
        .rounds(
            async || drain(bench, None).await,
            async || {
                bench.clear().await?;
                drain(bench, Some(open(bench).await?)).await
            },
        )
        .await?;
    Ok(vec![Figure {
        measure: "batch".to_owned(),
        unit: Unit::JobsPerSecond,
        what: format!(
            "{jobs} jobs of one batch, by {DRAINERS} connections that call trax.complete_and_claim by {DRAIN_BATCH}"
        ),
        floor: "the same jobs without a batch".to_owned(),
        rounds,
    }])
}

/// Completes jobs, which are those of a batch if there is one.
async fn drain(bench: &BenchDatabase, batch: Option<i64>) -> Result<Sample, Failure> {
    let jobs = bench.sizes.jobs;
    match batch {
        None => {
            bench.clear().await?;
            bench.load(jobs, "").await?;
        }
        Some(batch) => {
            bench.load(jobs, &format!(", batch => {batch}")).await?;
            let sealed = format!("select trax.seal_batch({batch})");
            expect("jobs of the batch", bench.number(&sealed).await?, jobs)?;
            bench.sql("vacuum (analyze) trax.need").await?;
        }
    }
    bench.settle_queue().await?;
    let cost = drain_by_sql(bench, jobs).await?;
    if let Some(batch) = batch {
        is_ready(bench, batch).await?;
    }
    let completed = "select count(*) from trax.run where state = 'completed'";
    expect("jobs completed", bench.number(completed).await?, jobs)?;
    Ok(Sample::rate(jobs, cost))
}

/// Measures from the last commit of a batch to its job being ready.
async fn ready(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut rounds = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!(
            "round {number} of {}, batches",
            bench.sizes.rounds
        ));
        let alone = claim_alone(bench).await?;
        let times = ready_times(bench).await?;
        if number > 0 {
            rounds.push((times, alone));
        }
    }
    let figure = |(part, percentile): (usize, &&str)| Figure {
        measure: format!("ready {percentile}"),
        unit: Unit::Milliseconds,
        what: format!(
            "last commit of a batch of two to its job being ready, seen by a look every millisecond, {} batches",
            bench.sizes.samples
        ),
        floor: FLOOR.to_owned(),
        rounds: rounds
            .iter()
            .map(|(times, alone)| Round {
                measured: Sample::bare(times.0[part]),
                floor: Some(Sample::bare(alone.0[part])),
            })
            .collect(),
    };
    Ok(Spread::PARTS.iter().enumerate().map(figure).collect())
}

async fn ready_times(bench: &BenchDatabase) -> Result<Spread, Failure> {
    bench.clear().await?;
    let connection = bench.connect().await?;
    let complete =
        "select count(trax.complete(c.job_id, c.token)) from trax.claim_next(max_jobs => 2) c";
    let complete = connection.prepare(complete).await?;
    let mut times = Vec::new();
    for _ in 0..bench.sizes.samples {
        let batch = open(bench).await?;
        bench.load(2, &format!(", batch => {batch}")).await?;
        let sealed = format!("select trax.seal_batch({batch})");
        expect("jobs of the batch", bench.number(&sealed).await?, 2)?;
        let completed = connection.query_one(&complete, &[]).await?;
        let sent = Instant::now();
        expect("jobs completed", completed.try_get(0)?, 2)?;
        times.push(is_ready(bench, batch).await?.duration_since(sent));
    }
    Ok(Spread::of(times))
}

async fn queued(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(
            async || {
                bench.clear().await?;
                let begun = bench.meter.begin().await?;
                bench.load_by(GRAPH, GRAPH, "").await?;
                Ok(Sample::rate(GRAPH, bench.meter.end(begun).await?))
            },
            async || graph(bench).await,
        )
        .await?;
    Ok(vec![Figure {
        measure: "enqueue".to_owned(),
        unit: Unit::JobsPerSecond,
        what: format!(
            "a graph of {GRAPH} jobs in {LAYERS} layers, each of which needs one of the layer before, by trax.enqueue_graph"
        ),
        floor: "as many jobs by one trax.enqueue_many".to_owned(),
        rounds,
    }])
}

async fn graph(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench.clear().await?;
    let width = GRAPH / LAYERS;
    let input = payload(1);
    let sql = format!(
        "select jsonb_build_object('jobs', jsonb_agg(
             jsonb_build_object('name', n::text, 'task', '{TASK}', 'input', '{input}'::jsonb)
             || case when n > {width} then jsonb_build_object('needs', jsonb_build_array((n - {width})::text)) else '{{}}' end
             order by n))::text
         from generate_series(1, {GRAPH}) n"
    );
    let document: String = bench.hand.query_typed_one(&sql, &[]).await?.try_get(0)?;
    let begun = bench.meter.begin().await?;
    let sql = "select count(*) from trax.enqueue_graph($1::text::jsonb)";
    let row = bench
        .hand
        .query_typed_one(sql, &[(&document, Type::TEXT)])
        .await?;
    let cost = bench.meter.end(begun).await?;
    expect("jobs queued", row.try_get(0)?, GRAPH)?;
    Ok(Sample::rate(GRAPH, cost))
}
