//! Suspended jobs: what they add to the work of others, how fast sleepers wake, and what children
//! cost.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;

use super::bench_database::{BenchDatabase, TASK, expect};
use super::claim_time::{claim_time, taken};
use super::cycle::run_cycle;
use super::drain::Drainer;
use super::report::{Figure, Round, Sample, Unit, median};
use trax_terminal::Failure;

/// The jobs that are suspended by one statement.
const BATCH: i64 = 1000;
/// The children of one parent.
const CHILDREN: i64 = 1000;
/// The waiting jobs beside the suspended ones, which claims take.
const OTHERS: i64 = 1000;
const LATEST_WAKE: Duration = Duration::from_secs(60);

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut figures = children(bench).await?;
    bench
        .hand
        .query_typed("select trax.pause('bench')", &[])
        .await?;
    figures.extend(sleepers(bench).await?);
    figures.extend(beside(bench).await?);
    Ok(figures)
}

/// Suspends all waiting jobs, each by this call, which may use c.job_id and c.token.
async fn suspend_all(bench: &BenchDatabase, jobs: i64, call: &str) -> Result<(), Failure> {
    let sql = format!(
        "select count(*) filter (where {call} = 'suspended')
         from trax.claim_next(lease => '1 day', max_jobs => {BATCH}) c"
    );
    let mut suspended = 0;
    loop {
        let more = bench.number(&sql).await?;
        suspended += more;
        if more == 0 {
            return expect("jobs suspended", suspended, jobs);
        }
    }
}

/// Times in milliseconds, one for each round, of a claim, an enqueue and a cycle.
struct Times([Vec<f64>; 3]);

impl Times {
    const NAMES: [&'static str; 3] = ["claim", "enqueue", "cycle"];

    async fn measure(bench: &BenchDatabase) -> Result<Self, Failure> {
        let mut times = Times([Vec::new(), Vec::new(), Vec::new()]);
        bench.load(OTHERS, "").await?;
        for number in 0..=bench.sizes.rounds {
            bench.load(taken(bench), "").await?;
            bench.settle_queue().await?;
            let round = [
                claim_time(bench).await?,
                enqueue_time(bench).await?,
                cycle_time(bench).await?,
            ];
            if number > 0 {
                for (times, time) in times.0.iter_mut().zip(round) {
                    times.push(time);
                }
            }
        }
        Ok(times)
    }
}

async fn enqueue_time(bench: &BenchDatabase) -> Result<f64, Failure> {
    let connection = bench.connect().await?;
    connection
        .batch_execute("set synchronous_commit = off")
        .await?;
    let sql = format!("select trax.enqueue('{TASK}', '{{}}')");
    let enqueue = connection.prepare(&sql).await?;
    let mut times = Vec::new();
    for _ in 0..bench.sizes.samples {
        let sent = Instant::now();
        connection.query_one(&enqueue, &[]).await?;
        times.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times).unwrap_or(0.0))
}

async fn cycle_time(bench: &BenchDatabase) -> Result<f64, Failure> {
    let connection = bench.connect().await?;
    let mut times = Vec::new();
    for _ in 0..bench.sizes.samples {
        times.push(run_cycle(&connection).await?.1);
    }
    Ok(median(times).unwrap_or(0.0))
}

/// Measures others before many jobs are suspended and while they are: half of them sleep, half wait
/// for a signal.
async fn beside(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let count = bench.sizes.waiting / 2;
    bench.clear().await?;
    bench.step("nothing is suspended");
    let alone = Times::measure(bench).await?;
    bench.clear().await?;
    bench.step(&format!("suspending {} jobs", 2 * count));
    let calls = [
        "trax.sleep(c.job_id, c.token, 'nap', now() + interval '30 days')",
        "(select w.state from trax.await_signal(c.job_id, c.token, 'go', 'go') w)",
    ];
    for call in calls {
        bench.load(count, "").await?;
        suspend_all(bench, count, call).await?;
    }
    bench.sql("vacuum (analyze) trax.step").await?;
    bench.step(&format!("{} jobs are suspended", 2 * count));
    let beside = Times::measure(bench).await?;
    let pairs = Times::NAMES.iter().zip(beside.0.iter().zip(alone.0));
    let figure = |(name, (beside, alone)): (&&str, (&Vec<f64>, Vec<f64>))| Figure {
        measure: (*name).to_owned(),
        unit: Unit::Milliseconds,
        what: format!(
            "a round trip while {} jobs are suspended, half of them until a signal, median of {}",
            2 * count,
            bench.sizes.samples
        ),
        floor: "the same while none is".to_owned(),
        rounds: beside
            .iter()
            .zip(alone)
            .map(|(beside, alone)| Round {
                measured: Sample::bare(*beside),
                floor: Some(Sample::bare(alone)),
            })
            .collect(),
    };
    Ok(pairs.map(figure).collect())
}

async fn sleepers(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let count = bench.sizes.blocked;
    let rounds = bench
        .rounds(
            async || wake_plainly(bench, count).await,
            async || wake(bench, count).await,
        )
        .await?;
    Ok(vec![Figure {
        measure: "sleepers".to_owned(),
        unit: Unit::JobsPerSecond,
        what: format!(
            "{count} jobs that sleep until times within one second, made claimable by trax.tick() when all are due"
        ),
        floor:
            "one update of as many rows of a table with the columns and indexes of trax.work_queue"
                .to_owned(),
        rounds,
    }])
}

async fn wake_plainly(bench: &BenchDatabase, count: i64) -> Result<Sample, Failure> {
    bench.clear().await?;
    bench
        .sql(&format!(
            "insert into bench.shape (lane_id, queued_at, run_at, waits_for, task, group_name, input)
             select 7, now(), now(), 'time', '{TASK}', 'default', '{{}}' from generate_series(1, {count})"
        ))
        .await?;
    bench.sql("vacuum (analyze) bench.shape").await?;
    let begun = bench.meter.begin().await?;
    bench
        .sql("update bench.shape set waits_for = null, run_at = clock_timestamp()")
        .await?;
    Ok(Sample::rate(count, bench.meter.end(begun).await?))
}

async fn wake(bench: &BenchDatabase, count: i64) -> Result<Sample, Failure> {
    bench.clear().await?;
    bench.load(count, "").await?;
    let call = "trax.sleep(c.job_id, c.token, 'nap', now() + interval '1 day')";
    suspend_all(bench, count, call).await?;
    bench
        .sql(
            "update trax.work_queue
             set run_at = clock_timestamp() - interval '1 us' * (job_id % 1000000)::float8",
        )
        .await?;
    bench.settle_queue().await?;
    let connection = bench.connect().await?;
    let begun = bench.meter.begin().await?;
    let deadline = Instant::now() + LATEST_WAKE;
    let asleep =
        "select count(*) from (select from trax.work_queue where waits_for = 'time' limit 1) w";
    while bench.number(asleep).await? > 0 {
        run_cycle(&connection).await?;
        if Instant::now() > deadline {
            return Err(Failure::new("a job was due and did not wake"));
        }
    }
    Ok(Sample::rate(count, bench.meter.end(begun).await?))
}

async fn children(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(async || alone(bench).await, async || family(bench).await)
        .await?;
    Ok(vec![Figure {
        measure: "children".to_owned(),
        unit: Unit::JobsPerSecond,
        what: format!(
            "{CHILDREN} children, spawned in one statement and completed by 100 over one connection, to the answer that \
             they have ended"
        ),
        floor: "as many jobs, queued by trax.enqueue in one statement and completed".to_owned(),
        rounds,
    }])
}

async fn alone(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench.clear().await?;
    let drainer = Drainer::new(bench.connect().await?, 1).await?;
    let sql =
        format!("select count(trax.enqueue('{TASK}', '{{}}')) from generate_series(1, {CHILDREN})");
    let begun = bench.meter.begin().await?;
    expect("jobs queued", bench.number(&sql).await?, CHILDREN)?;
    drainer.until(CHILDREN, Arc::new(AtomicI64::new(0))).await?;
    let cost = bench.meter.end(begun).await?;
    bench.expect_completed(CHILDREN).await?;
    Ok(Sample::rate(CHILDREN, cost))
}

async fn family(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench.clear().await?;
    let drainer = Drainer::new(bench.connect().await?, 1).await?;
    let connection = bench.connect().await?;
    let sql = "select trax.enqueue('parent', '{}')";
    connection.query_typed_one(sql, &[]).await?;
    let begun = bench.meter.begin().await?;
    let spawn = format!(
        "select count(trax.spawn(c.job_id, c.token, 'child ' || n, '{TASK}', '{{}}'))
         from trax.claim_next(tasks => '{{parent}}') c
         cross join generate_series(1, {CHILDREN}) n"
    );
    let row = connection.query_typed_one(&spawn, &[]).await?;
    expect("children", row.try_get(0)?, CHILDREN)?;
    expect("parents suspended", await_children(&connection).await?, 0)?;
    drainer.until(CHILDREN, Arc::new(AtomicI64::new(0))).await?;
    let deadline = Instant::now() + LATEST_WAKE;
    while await_children(&connection).await? == 0 {
        if Instant::now() > deadline {
            return Err(Failure::new("a parent did not wake"));
        }
    }
    let cost = bench.meter.end(begun).await?;
    let sql = "select count(trax.complete(job_id, token)) from trax.lease";
    connection.query_typed_one(sql, &[]).await?;
    bench.expect_completed(CHILDREN + 1).await?;
    Ok(Sample::rate(CHILDREN, cost))
}

/// Awaits the children of the parent, if it is held or can be claimed; returns 1 when they have
/// ended.
async fn await_children(connection: &Connection) -> Result<i64, Failure> {
    let claim = "select count(*) from trax.claim_next(tasks => '{parent}')";
    connection.query_typed_one(claim, &[]).await?;
    let sql = "select count(*) filter (where w.state = 'ended')
        from trax.lease l
        cross join lateral trax.await_children(l.job_id, l.token, 'all') w
        where l.task = 'parent'";
    Ok(connection.query_typed_one(sql, &[]).await?.try_get(0)?)
}
