//! Rates: how exactly a rate is reached, what jobs that it holds back cost other claims, and how
//! fast other programs consume it.

use tokio_postgres::Client as Connection;

use super::barrier::Barrier;
use super::bench_database::{BenchDatabase, expect, join, spawn};
use super::claim_time::{claim_time, taken};
use super::floor;
use super::report::{Figure, Sample, Unit};
use trax_terminal::Failure;

/// The starts in a second, and at once.
const ALLOWED: i64 = 10_000;
const BURST: i64 = 100;
/// The connections that claim, or that consume.
const CONNECTIONS: i64 = 8;
/// The jobs of one claim.
const BATCH: i64 = 100;
/// The rate of which hardly anything starts.
const HELD: &str = "select trax.configure_rate('held', 1, '1 day')";
/// The free jobs behind those that are held back.
const SHALLOW: i64 = 1000;

/// Windows with one too many, by the recorded starts, in microseconds.
const TOO_MANY: &str = "
    with start as (
        select
            (extract(epoch from r.started_at) * 1000000)::bigint as at,
            row_number() over (order by r.started_at) as number
        from trax.run r
    ), lowest as (
        select s.at, s.number, min((s.number - 1) * 100 - s.at) over (order by s.number) as before
        from start s
    )
    select count(*) from lowest l where l.number * 100 - l.at - l.before > 100 * 100";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let limit = format!("select trax.configure_rate('bench', {ALLOWED}, '1 s', {BURST})");
    bench.sql(&limit).await?;
    bench.sql(HELD).await?;
    let jobs = started(bench);
    let starts = bench
        .rounds(
            async || Ok(Sample::bare(ALLOWED as f64)),
            async || starts(bench).await,
        )
        .await?;
    let beside = bench
        .rounds(
            async || beside(bench, false).await,
            async || beside(bench, true).await,
        )
        .await?;
    let consume = bench
        .rounds(
            async || floor::commit(bench, CONNECTIONS).await,
            async || consume(bench).await,
        )
        .await?;
    Ok(vec![
        Figure {
            measure: "starts".to_owned(),
            unit: Unit::JobsPerSecond,
            what: format!(
                "{jobs} jobs of a rate of {ALLOWED} a second and a burst of {BURST}, without the burst; \
                 {CONNECTIONS} connections claim by {BATCH}; no window of recorded starts had one too many"
            ),
            floor: "the rate".to_owned(),
            rounds: starts,
        },
        Figure {
            measure: "beside".to_owned(),
            unit: Unit::Milliseconds,
            what: format!(
                "a claim of one of {SHALLOW} free jobs behind {} older ones that a rate holds back, median of {}",
                bench.sizes.blocked, bench.sizes.samples
            ),
            floor: "the same free jobs with nothing in front".to_owned(),
            rounds: beside,
        },
        Figure {
            measure: "consume".to_owned(),
            unit: Unit::TransactionsPerSecond,
            what: format!("{CONNECTIONS} connections call trax.consume_rate"),
            floor: format!("one commit of one inserted row, over {CONNECTIONS} connections"),
            rounds: consume,
        },
    ])
}

/// Returns the jobs of a round: half a second of the rate or more.
fn started(bench: &BenchDatabase) -> i64 {
    (bench.sizes.jobs / 20).max(2 * BURST)
}

async fn starts(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = started(bench);
    bench.clear().await?;
    bench.load(jobs, ", rate => 'bench'").await?;
    bench.settle_queue().await?;
    let line = Barrier::raise(bench, "trax.work_queue").await?;
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        tasks.push(spawn(claim_all(bench.connect().await?)));
    }
    line.go(bench, CONNECTIONS).await?;
    join(tasks).await?;
    bench.expect_completed(jobs).await?;
    let too_many = bench.number(TOO_MANY).await?;
    expect("windows with one too many", too_many, 0)?;
    let span = "select (extract(epoch from max(started_at) - min(started_at)) * 1000000)::bigint from trax.run";
    let micros = bench.number(span).await?.max(1);
    Ok(Sample::bare((jobs - BURST) as f64 * 1e6 / micros as f64))
}

/// Claims and completes until no job is left.
async fn claim_all(connection: Connection) -> Result<(), Failure> {
    let work = connection
        .prepare(&format!(
            "with claimed as materialized (
                 select c.job_id, c.token from trax.claim_next(max_jobs => {BATCH}, lease => '1 day') c
             )
             select count(trax.complete(c.job_id, c.token)) from claimed c"
        ))
        .await?;
    loop {
        let row = connection.query_one(&work, &[]).await?;
        if row.try_get::<_, i64>(0)? > 0 {
            continue;
        }
        let left = "select exists (select from trax.work_queue)";
        let left = connection.query_typed_one(left, &[]).await?;
        if !left.try_get::<_, bool>(0)? {
            return Ok(());
        }
        connection
            .batch_execute("call trax.wait_for_work('100 ms')")
            .await?;
    }
}

/// Returns the time of a claim of free jobs, behind jobs that a rate holds back if there are any.
async fn beside(bench: &BenchDatabase, has_held: bool) -> Result<Sample, Failure> {
    bench.clear().await?;
    if has_held {
        let options = ", rate => 'held'";
        bench.load(bench.sizes.blocked + 1, options).await?;
        // The only one that may start.
        bench
            .sql("select count(*) from trax.claim_next(max_jobs => 2, lease => '1 day')")
            .await?;
    }
    bench.load(SHALLOW + taken(bench), "").await?;
    bench.settle_queue().await?;
    Ok(Sample::bare(claim_time(bench).await?))
}

async fn consume(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench.clear().await?;
    let each = (bench.sizes.jobs / 10 / CONNECTIONS).max(1);
    let line = Barrier::raise(bench, "trax.rate").await?;
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = bench.connect().await?;
        tasks.push(spawn(async move {
            let sql = "select granted from trax.consume_rate('bench')";
            let consume = connection.prepare(sql).await?;
            for _ in 0..each {
                connection.query_one(&consume, &[]).await?;
            }
            Ok(())
        }));
    }
    let begun = line.go(bench, CONNECTIONS).await?;
    join(tasks).await?;
    let cost = bench.meter.end(begun).await?;
    Ok(Sample::rate(each * CONNECTIONS, cost))
}
