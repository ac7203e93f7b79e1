//! A steady load while another session holds a snapshot, which keeps dead rows from being removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;

use super::bench_database::{BenchDatabase, LoadTask, TASK, expect, figure, join, payload, spawn};
use super::drain::Drainer;
use super::enqueue::Json;
use super::floor::{DRAINERS, QUEUE_BATCH};
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

/// The producer pauses while more jobs than this wait, so the load adapts to the consumers.
const BACKLOG: i64 = 20_000;
/// The time before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// The interval for checking that the load still runs.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    // Each load includes its own warm-up, since only its end is measured.
    let mut rounds = Vec::new();
    for number in 1..=bench.sizes.rounds {
        let round = format!("round {number} of {}", bench.sizes.rounds);
        bench.step(&format!("{round}, no snapshot held"));
        let floor = Some(load(bench, false).await?);
        bench.step(&format!("{round}, a snapshot held"));
        let measured = load(bench, true).await?;
        rounds.push(Round { measured, floor });
    }
    let what = format!(
        "jobs completed in the last {:?} of {:?} in which another session holds a repeatable-read snapshot; 1 connection queues by \
         {QUEUE_BATCH}, {DRAINERS} call trax.complete_and_claim by 100",
        window(bench),
        bench.sizes.hold
    );
    Ok(figure(
        Unit::JobsPerSecond,
        what,
        "the same load, as long, while nobody holds a snapshot",
        rounds,
    ))
}

/// Returns the length of the measurement.
fn window(bench: &BenchDatabase) -> Duration {
    bench.sizes.seconds.min(bench.sizes.hold)
}

/// Measures the end of a load; with `is_held`, another session holds a snapshot throughout.
async fn load(bench: &BenchDatabase, is_held: bool) -> Result<Sample, Failure> {
    let holder = bench.connect().await?;
    let load = Load::begin(bench).await?;
    tokio::time::sleep(WARM_UP.min(bench.sizes.hold)).await;
    if is_held {
        let sql = "begin isolation level repeatable read; select count(*) from bench.plain";
        holder.batch_execute(sql).await?;
    }
    let rest = bench.sizes.hold - window(bench);
    load.lasts(rest).await?;
    let sample = load.measure(bench).await?;
    holder.batch_execute("rollback").await?;
    load.end(bench).await?;
    Ok(sample)
}

/// A producer and its consumers.
struct Load {
    tasks: Vec<LoadTask>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    queued: AtomicI64,
    completed: AtomicI64,
}

impl Load {
    async fn begin(bench: &BenchDatabase) -> Result<Self, Failure> {
        bench.clear().await?;
        let counts = Arc::new(Counts::default());
        let mut tasks = vec![spawn(produce(bench.connect().await?, Arc::clone(&counts)))];
        for number in 0..DRAINERS {
            let taker = Drainer::new(bench.connect().await?, number).await?;
            tasks.push(spawn(consume(taker, Arc::clone(&counts))));
        }
        Ok(Load { tasks, counts })
    }

    /// Waits, unless a task fails.
    async fn lasts(&self, length: Duration) -> Result<(), Failure> {
        let end = Instant::now() + length;
        loop {
            if let Some(ended) = self.tasks.iter().position(LoadTask::is_finished) {
                return Err(Failure::new(format!("part {ended} of the load broke off")));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    async fn measure(&self, bench: &BenchDatabase) -> Result<Sample, Failure> {
        let begun = bench.meter.begin().await?;
        let before = self.counts.completed.load(Ordering::Relaxed);
        self.lasts(window(bench)).await?;
        let count = self.counts.completed.load(Ordering::Relaxed) - before;
        Ok(Sample::rate(count, bench.meter.end(begun).await?))
    }

    async fn end(self, bench: &BenchDatabase) -> Result<(), Failure> {
        self.counts.stop.store(true, Ordering::Relaxed);
        join(self.tasks).await?;
        let sql = "select (select count(*) from trax.work_queue) + (select count(distinct job_id) from trax.run)
            + (select count(*) from trax.lease)";
        let queued = self.counts.queued.load(Ordering::Relaxed);
        expect("jobs anywhere", bench.number(sql).await?, queued)?;
        let sql = "select count(*) from trax.run";
        let completed = self.counts.completed.load(Ordering::Relaxed);
        expect("runs", bench.number(sql).await?, completed)
    }
}

async fn produce(connection: Connection, counts: Arc<Counts>) -> Result<(), Failure> {
    let sql = format!("select count(*) from trax.enqueue_many('{TASK}', $1)");
    let statement = connection.prepare_typed(&sql, &[Type::JSONB_ARRAY]).await?;
    let inputs: Vec<Json> = (0..QUEUE_BATCH).map(|n| Json(payload(n))).collect();
    while !counts.stop.load(Ordering::Relaxed) {
        if counts.queued.load(Ordering::Relaxed) - counts.completed.load(Ordering::Relaxed)
            > BACKLOG
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        connection.query_one(&statement, &[&inputs]).await?;
        counts.queued.fetch_add(QUEUE_BATCH, Ordering::Relaxed);
    }
    Ok(())
}

async fn consume(mut taker: Drainer, counts: Arc<Counts>) -> Result<(), Failure> {
    while !counts.stop.load(Ordering::Relaxed) {
        let (completed, claimed) = taker.turn().await?;
        counts.completed.fetch_add(completed, Ordering::Relaxed);
        if claimed == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(())
}
