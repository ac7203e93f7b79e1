//! The delay until a job begins on an otherwise idle system.
//!
//! The time is measured from sending the COMMIT of the enqueueing transaction to the start of the
//! handler. The transaction does not wait for the disk (synchronous_commit off), so the producer's
//! flush is not counted; the claim's flush is.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::{HandlerResult, Worker};
use uuid::Uuid;

use super::bench_database::{BenchDatabase, TASK, join, payload, spawn};
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The pause between two jobs, after which every process sleeps again.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

pub(crate) const FLOOR: &str =
    "trax.claim_next alone, by a session that knows that the job is there";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut rounds: Vec<[Spread; 3]> = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("round {number} of {}", bench.sizes.rounds));
        let round = [
            claim_alone(bench).await?,
            worker(bench).await?,
            plain_loop(bench).await?,
        ];
        if number > 0 {
            rounds.push(round);
        }
    }
    let samples = bench.sizes.samples;
    let mut figures = Vec::new();
    let ways = [
        ("worker", "handler of a worker of the Rust client"),
        (
            "loop",
            "return of trax.claim_next in a loop of trax.wait_for_work and trax.claim_next",
        ),
    ];
    for (way, (name, end)) in ways.into_iter().enumerate() {
        for (part, percentile) in Spread::PARTS.iter().enumerate() {
            let rounds = rounds.iter().map(|round| Round {
                measured: Sample::bare(round[way + 1].0[part]),
                floor: Some(Sample::bare(round[0].0[part])),
            });
            figures.push(Figure {
                measure: format!("{name} {percentile}"),
                unit: Unit::Milliseconds,
                what: format!(
                    "commit of trax.enqueue to the {end}, {samples} single jobs, idle system"
                ),
                floor: FLOOR.to_owned(),
                rounds: rounds.collect(),
            });
        }
    }
    Ok(figures)
}

/// The median, the 99th percentile and the maximum, in milliseconds.
pub(crate) struct Spread(pub(crate) [f64; 3]);

impl Spread {
    pub(crate) const PARTS: [&'static str; 3] = ["p50", "p99", "max"];

    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |part: f64| {
            let rank = (times.len() as f64 * part).ceil() as usize;
            let time = times
                .get(rank.saturating_sub(1))
                .copied()
                .unwrap_or_default();
            time.as_secs_f64() * 1e3
        };
        Spread([at(0.5), at(0.99), at(1.0)])
    }
}

/// Queues one job at a time and waits for its start.
struct Producer {
    connection: Connection,
    begun: UnboundedReceiver<Instant>,
}

impl Producer {
    async fn new(bench: &BenchDatabase) -> Result<(Self, UnboundedSender<Instant>), Failure> {
        let (begun_times, begun) = unbounded_channel();
        let connection = bench.connect().await?;
        connection
            .batch_execute("set synchronous_commit = off")
            .await?;
        Ok((Producer { connection, begun }, begun_times))
    }

    async fn times(mut self, bench: &BenchDatabase) -> Result<Spread, Failure> {
        let enqueue = format!("select trax.enqueue('{TASK}', '{}')", payload(1));
        let enqueue = self.connection.prepare(&enqueue).await?;
        let mut times = Vec::new();
        // The first job meets a connection that is still being opened.
        for number in 0..=bench.sizes.samples {
            self.connection.batch_execute("begin").await?;
            self.connection.query_one(&enqueue, &[]).await?;
            let sent = Instant::now();
            self.connection.batch_execute("commit").await?;
            let begun = tokio::time::timeout(DEADLINE, self.begun.recv())
                .await
                .ok()
                .flatten();
            let begun = begun.ok_or_else(|| Failure::new("a job was queued and did not begin"))?;
            if number > 0 {
                times.push(begun.duration_since(sent));
            }
            tokio::time::sleep(PAUSE).await;
        }
        let samples = i64::from(bench.sizes.samples);
        bench.expect_completed_soon(samples + 1).await?;
        Ok(Spread::of(times))
    }
}

async fn worker(bench: &BenchDatabase) -> Result<Spread, Failure> {
    bench.clear().await?;
    let (producer, begun_times) = Producer::new(bench).await?;
    let worker = Worker::with_state(bench.config(), begun_times)
        .without_signals()
        .handle(
            TASK,
            async |_: Value,
                   ctx: trax_client::Context<UnboundedSender<Instant>>|
                   -> HandlerResult<()> { Ok(ctx.state().send(Instant::now())?) },
        );
    let shutdown = worker.shutdown();
    let hand = spawn(async move {
        worker.run().await?;
        Ok(())
    });
    let spread = producer.times(bench).await;
    shutdown.drain();
    join(vec![hand]).await?;
    spread
}

async fn plain_loop(bench: &BenchDatabase) -> Result<Spread, Failure> {
    bench.clear().await?;
    let (producer, begun_times) = Producer::new(bench).await?;
    let hand = spawn(wait_and_claim(bench.connect().await?, begun_times));
    let spread = producer.times(bench).await;
    hand.abort();
    spread
}

/// Waits and claims as a worker in any language; ends when the receiver is dropped.
async fn wait_and_claim(
    connection: Connection,
    begun_times: UnboundedSender<Instant>,
) -> Result<(), Failure> {
    let wait = connection
        .prepare("call trax.wait_for_work('30 s')")
        .await?;
    let claim = connection
        .prepare("select job_id, token, input from trax.claim_next()")
        .await?;
    let complete = connection
        .prepare_typed("select trax.complete($1, $2)", &[Type::INT8, Type::UUID])
        .await?;
    loop {
        match connection.query_opt(&claim, &[]).await? {
            Some(row) => {
                if begun_times.send(Instant::now()).is_err() {
                    return Ok(());
                }
                let (id, token): (i64, Uuid) = (row.try_get(0)?, row.try_get(1)?);
                connection.query_one(&complete, &[&id, &token]).await?;
            }
            None => {
                connection.execute(&wait, &[]).await?;
            }
        }
    }
}

pub(crate) async fn claim_alone(bench: &BenchDatabase) -> Result<Spread, Failure> {
    bench.clear().await?;
    let connection = bench.connect().await?;
    let enqueue = format!("select trax.enqueue('{TASK}', '{}')", payload(1));
    let enqueue = connection.prepare(&enqueue).await?;
    let claim = connection
        .prepare("select job_id, token, input from trax.claim_next()")
        .await?;
    let mut times = Vec::new();
    for number in 0..=bench.sizes.samples {
        connection.query_one(&enqueue, &[]).await?;
        let sent = Instant::now();
        connection.query_one(&claim, &[]).await?;
        if number > 0 {
            times.push(sent.elapsed());
        }
    }
    Ok(Spread::of(times))
}
