//! An outbox and its relay in the target database: the cost at the source, the rate of carrying
//! rows, and the delay of a row at a steady pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_postgres::Client as Connection;
use trax_relay::{OUTBOX_SQL, Seat, TARGET_SQL};

use super::bench_database::{BenchDatabase, TASK, expect, join, payload, spawn};
use super::latency::Spread;
use super::producer;
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

/// The rows of one transaction in the target, as in trax relay.
const BATCH: i64 = 500;
/// The pace: the number of connections, and the interval between commits of each.
const COMMITTERS: i64 = 8;
const EACH: Duration = Duration::from_millis(8);

const FLOOR: &str = "as many calls of trax.enqueue without an outbox, 500 in a transaction";
const SOURCE_CALL: &str = "select trax_outbox.enqueue($1, $2)";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    bench.sql(OUTBOX_SQL).await?;
    bench.sql(TARGET_SQL).await?;
    producer::make_tables(bench).await?;
    let source = bench
        .rounds(
            async || producer::produce(bench, producer::PLAIN, "bench.shape").await,
            async || {
                empty(bench).await?;
                producer::produce(bench, SOURCE_CALL, "trax_outbox.entry").await
            },
        )
        .await?;
    let carried = bench
        .rounds(async || directly(bench).await, async || carry(bench).await)
        .await?;
    let mut lags = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("lag, round {number} of {}", bench.sizes.rounds));
        let lag = lag(bench).await?;
        if number > 0 {
            lags.push(lag);
        }
    }
    let mut figures = vec![
        Figure {
            measure: "source".to_owned(),
            unit: Unit::TransactionsPerSecond,
            what: format!(
                "{} connections that commit an insert into a table of their own and trax_outbox.enqueue, {:?}, no relay",
                producer::PRODUCERS,
                bench.sizes.seconds
            ),
            floor: producer::FLOOR.to_owned(),
            rounds: source,
        },
        Figure {
            measure: "carried".to_owned(),
            unit: Unit::JobsPerSecond,
            what: format!(
                "{} waiting rows of an outbox carried by one relay, source and target in the same database",
                rows(bench)
            ),
            floor: FLOOR.to_owned(),
            rounds: carried,
        },
    ];
    for (part, percentile) in Spread::PARTS.iter().enumerate() {
        figures.push(Figure {
            measure: format!("lag {percentile}"),
            unit: Unit::Milliseconds,
            what: "from trax_outbox.enqueue, in a transaction of its own, to trax.enqueue by the relay, at 1,000 \
                commits a second"
                .to_owned(),
            floor: String::new(),
            rounds: lags
                .iter()
                .map(|lag| Round {
                    measured: Sample::bare(lag.0[part]),
                    floor: None,
                })
                .collect(),
        });
    }
    Ok(figures)
}

/// Returns a tenth of the bulk size.
fn rows(bench: &BenchDatabase) -> i64 {
    (bench.sizes.jobs / 10).max(BATCH)
}

/// Removes the rows of earlier rounds.
async fn empty(bench: &BenchDatabase) -> Result<(), Failure> {
    bench.clear().await?;
    bench
        .sql("truncate trax_outbox.entry, trax_relay.carried")
        .await
}

fn options(once: bool) -> trax_relay::Options {
    trax_relay::Options {
        batch: BATCH,
        poll: Duration::from_secs(1),
        results: false,
        once,
        patience: Duration::from_secs(60),
    }
}

fn seat() -> Seat {
    Seat::of(1).remove(0)
}

/// Queues the jobs of a round without an outbox.
async fn directly(bench: &BenchDatabase) -> Result<Sample, Failure> {
    empty(bench).await?;
    let connection = bench.connect().await?;
    let sql = format!(
        "select count(trax.enqueue('{TASK}', '{}')) from generate_series(1, {BATCH})",
        payload(1)
    );
    let batches = rows(bench) / BATCH;
    let begun = bench.meter.begin().await?;
    for _ in 0..batches {
        connection.batch_execute(&sql).await?;
    }
    let cost = bench.meter.end(begun).await?;
    Ok(Sample::rate(batches * BATCH, cost))
}

async fn carry(bench: &BenchDatabase) -> Result<Sample, Failure> {
    empty(bench).await?;
    let rows = rows(bench);
    bench
        .sql(&format!(
            "select count(trax_outbox.enqueue('{TASK}', '{}')) from generate_series(1, {rows})",
            payload(1)
        ))
        .await?;
    bench.sql("vacuum (analyze) trax_outbox.entry").await?;
    let address = bench.config();
    let begun = bench.meter.begin().await?;
    let relayed = trax_relay::run(&address, &address, &seat(), &options(true), |_| {}).await;
    let cost = bench.meter.end(begun).await?;
    relayed.map_err(|trouble| Failure::new(trouble.to_string()))?;
    expect_jobs(bench, rows).await?;
    Ok(Sample::rate(rows, cost))
}

async fn expect_jobs(bench: &BenchDatabase, rows: i64) -> Result<(), Failure> {
    let jobs = bench.number("select count(*) from trax.work_queue").await?;
    expect("jobs queued", jobs, rows)
}

/// Commits at a steady pace while a relay runs; returns the delay of its rows.
async fn lag(bench: &BenchDatabase) -> Result<Spread, Failure> {
    empty(bench).await?;
    let address = bench.config();
    let relay = tokio::spawn(async move {
        let ended = trax_relay::run(&address, &address, &seat(), &options(false), |_| {}).await;
        ended.map_err(|trouble| Failure::new(trouble.to_string()))
    });
    bench
        .wait_for_zero("select count(*) - 1 from trax_outbox.target where asleep")
        .await?;
    let committed = Arc::new(AtomicI64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..COMMITTERS {
        let connection = bench.connect().await?;
        let (committed, seconds) = (Arc::clone(&committed), bench.sizes.seconds);
        tasks.push(spawn(commit_steadily(connection, committed, seconds)));
    }
    join(tasks).await?;
    bench
        .wait_for_zero("select count(*) from trax_outbox.entry")
        .await?;
    relay.abort();
    expect_jobs(bench, committed.load(Ordering::Relaxed)).await?;
    let sql =
        "select greatest(extract(epoch from c.carried_at) - q.input::text::numeric, 0)::float8
        from trax_relay.carried c
        join trax.work_queue q on q.job_id = c.job_id";
    let found = bench.connect().await?.query(sql, &[]).await?;
    let times = found
        .iter()
        .map(|row| Ok(Duration::from_secs_f64(row.try_get(0)?)));
    Ok(Spread::of(times.collect::<Result<_, Failure>>()?))
}

async fn commit_steadily(
    connection: Connection,
    committed: Arc<AtomicI64>,
    seconds: Duration,
) -> Result<(), Failure> {
    let sql = format!(
        "select trax_outbox.enqueue('{TASK}', to_jsonb(extract(epoch from clock_timestamp())))"
    );
    let statement = connection.prepare(&sql).await?;
    let mut ticks = tokio::time::interval(EACH);
    // A late commit is followed by faster ones, so that the pace holds.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let each = seconds.as_millis() / EACH.as_millis();
    for _ in 0..each {
        ticks.tick().await;
        connection.query(&statement, &[]).await?;
        committed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
