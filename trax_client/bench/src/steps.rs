//! Steps: how many are recorded, by plain SQL and in workflows of the Rust client, and how soon a
//! suspended job receives a signal.

use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::{Context, HandlerResult, Worker};
use uuid::Uuid;

use super::barrier::Barrier;
use super::bench_database::{BenchDatabase, TASK, expect, join, payload, spawn};
use super::floor;
use super::latency::{DEADLINE, FLOOR, PAUSE, Spread, claim_alone};
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

/// The numbers of connections that record steps by plain SQL.
const RECORDERS: [i64; 2] = [4, 8];
/// The most steps of one job: far below the limit.
const STEPS_OF_A_JOB: i64 = 1000;
/// The steps of a workflow.
const STEPS_OF_A_WORKFLOW: i64 = 10;
/// The workers that execute workflows, and the handlers of each.
const WORKERS: i64 = 2;
const CONCURRENCY: usize = 100;

const COMMITS: &str = "one commit of one inserted row a step, over as many connections";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for connections in RECORDERS {
        let rounds = bench
            .rounds(
                async || floor::commit(bench, connections).await,
                async || record(bench, connections).await,
            )
            .await?;
        figures.push(Figure {
            measure: format!("by {connections}"),
            unit: Unit::StepsPerSecond,
            what: format!(
                "{connections} connections, each trax.record_step of jobs with {STEPS_OF_A_JOB} steps, a commit a step"
            ),
            floor: COMMITS.to_owned(),
            rounds,
        });
    }
    let rounds = bench
        .rounds(
            async || floor::commit(bench, RECORDERS[0]).await,
            async || workflows(bench).await,
        )
        .await?;
    figures.push(Figure {
        measure: "workflows".to_owned(),
        unit: Unit::StepsPerSecond,
        what: format!(
            "{} jobs of {STEPS_OF_A_WORKFLOW} steps that do nothing, by {WORKERS} workers of the Rust client in this \
             process ({CONCURRENCY} handlers each); CPU and WAL a step, with the life of the jobs",
            workflow_jobs(bench)
        ),
        floor: format!("one commit of one inserted row a step, over {} connections", RECORDERS[0]),
        rounds,
    });
    figures.extend(signals(bench).await?);
    Ok(figures)
}

/// Returns the steps that a connection records in a round: as many as the floor has commits.
fn steps_each(bench: &BenchDatabase, connections: i64) -> i64 {
    (bench.sizes.jobs / 10 / connections).max(1)
}

async fn record(bench: &BenchDatabase, connections: i64) -> Result<Sample, Failure> {
    bench.clear().await?;
    let each = steps_each(bench, connections);
    let jobs_each = (each - 1) / STEPS_OF_A_JOB + 1;
    bench.load(jobs_each * connections, "").await?;
    let claim = format!(
        "select job_id, token from trax.claim_next(lease => '1 day', max_jobs => {jobs_each})"
    );
    let mut recorders = Vec::new();
    for _ in 0..connections {
        let connection = bench.connect().await?;
        let mut held: Vec<(i64, Uuid)> = Vec::new();
        for row in connection.query_typed(&claim, &[]).await? {
            held.push((row.try_get(0)?, row.try_get(1)?));
        }
        expect("jobs claimed", held.len() as i64, jobs_each)?;
        recorders.push((connection, held));
    }
    let line = Barrier::raise(bench, "trax.step").await?;
    let mut tasks = Vec::new();
    for (connection, held) in recorders {
        tasks.push(spawn(record_each(connection, held, each)));
    }
    let begun = line.go(bench, connections).await?;
    join(tasks).await?;
    let cost = bench.meter.end(begun).await?;
    let steps = bench.number("select count(*) from trax.step").await?;
    expect("steps recorded", steps, each * connections)?;
    Ok(Sample::rate(steps, cost))
}

async fn record_each(
    connection: Connection,
    held: Vec<(i64, Uuid)>,
    steps: i64,
) -> Result<(), Failure> {
    let types = [Type::INT8, Type::UUID, Type::TEXT, Type::JSONB];
    let sql = "select recorded from trax.record_step($1, $2, $3, $4)";
    let statement = connection.prepare_typed(sql, &types).await?;
    let output: Value = serde_json::from_str(&payload(1)).map_err(trax_client::Error::from)?;
    for number in 0..steps {
        let (job_id, token) = held[(number / STEPS_OF_A_JOB) as usize];
        let step = format!("step {number}");
        let row = connection
            .query_one(&statement, &[&job_id, &token, &step, &output])
            .await?;
        expect("steps recorded", row.try_get::<_, bool>(0)?.into(), 1)?;
    }
    Ok(())
}

/// Returns the number of workflows in a round, which record as many steps as the floor has commits.
fn workflow_jobs(bench: &BenchDatabase) -> i64 {
    (bench.sizes.jobs / 10 / STEPS_OF_A_WORKFLOW).max(1)
}

async fn workflows(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = workflow_jobs(bench);
    bench.clear().await?;
    bench.load(jobs, "").await?;
    bench.settle_queue().await?;
    let line = Barrier::raise(bench, "trax.work_queue").await?;
    let mut tasks = Vec::new();
    for _ in 0..WORKERS {
        let worker = Worker::new(bench.config())
            .concurrency(CONCURRENCY)
            .without_signals()
            .until_empty()
            .handle(TASK, workflow);
        tasks.push(spawn(async move {
            worker.run().await?;
            Ok(())
        }));
    }
    let begun = line.go(bench, WORKERS).await?;
    join(tasks).await?;
    let cost = bench.meter.end(begun).await?;
    bench.expect_completed(jobs).await?;
    let kept = "select sum(jsonb_array_length(steps)) from trax.run";
    let steps = jobs * STEPS_OF_A_WORKFLOW;
    expect("steps kept", bench.number(kept).await?, steps)?;
    Ok(Sample::rate(steps, cost))
}

async fn workflow(_: Value, ctx: Context) -> HandlerResult<()> {
    for number in 0..STEPS_OF_A_WORKFLOW {
        let step = async || -> HandlerResult<Value> { Ok(json!({"n": number})) };
        ctx.step(&format!("step {number}"), step).await?;
    }
    Ok(())
}

async fn signals(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut rounds = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!(
            "round {number} of {}, signals",
            bench.sizes.rounds
        ));
        let alone = claim_alone(bench).await?;
        let received = received(bench).await?;
        if number > 0 {
            rounds.push((received, alone));
        }
    }
    let figure = |(part, percentile): (usize, &&str)| Figure {
        measure: format!("signal {percentile}"),
        unit: Unit::Milliseconds,
        what: format!(
            "commit of trax.send_signal to the handler of a suspended job behind its wait, {} jobs, idle system",
            bench.sizes.samples
        ),
        floor: FLOOR.to_owned(),
        rounds: rounds
            .iter()
            .map(|(received, alone)| Round {
                measured: Sample::bare(received.0[part]),
                floor: Some(Sample::bare(alone.0[part])),
            })
            .collect(),
    };
    Ok(Spread::PARTS.iter().enumerate().map(figure).collect())
}

async fn received(bench: &BenchDatabase) -> Result<Spread, Failure> {
    bench.clear().await?;
    let (times, received) = unbounded_channel();
    let worker = Worker::with_state(bench.config(), times)
        .without_signals()
        .handle(
            TASK,
            async |_: Value, ctx: Context<UnboundedSender<Instant>>| -> HandlerResult<()> {
                ctx.signal::<Value>("go", None).await?;
                Ok(ctx.state().send(Instant::now())?)
            },
        );
    let shutdown = worker.shutdown();
    let hand = spawn(async move {
        worker.run().await?;
        Ok(())
    });
    let spread = send_each(bench, received).await;
    shutdown.drain();
    join(vec![hand]).await?;
    spread
}

/// Sends a signal to a job at a time. The commit does not wait for the disk, as in `latency`.
async fn send_each(
    bench: &BenchDatabase,
    mut received: UnboundedReceiver<Instant>,
) -> Result<Spread, Failure> {
    let connection = bench.connect().await?;
    connection
        .batch_execute("set synchronous_commit = off")
        .await?;
    let enqueue = format!("select trax.enqueue('{TASK}', '{}')", payload(1));
    let enqueue = connection.prepare(&enqueue).await?;
    let send = connection
        .prepare_typed("select trax.send_signal($1, 'go')", &[Type::INT8])
        .await?;
    let mut times = Vec::new();
    for number in 0..=bench.sizes.samples {
        let job_id: i64 = connection.query_one(&enqueue, &[]).await?.try_get(0)?;
        bench
            .wait_for_zero("select 1 - count(*) from trax.work_queue where waits_for = 'signal'")
            .await?;
        tokio::time::sleep(PAUSE).await;
        connection.batch_execute("begin").await?;
        connection.query_one(&send, &[&job_id]).await?;
        let sent = Instant::now();
        connection.batch_execute("commit").await?;
        let at = tokio::time::timeout(DEADLINE, received.recv()).await;
        let at = at.ok().flatten();
        let at = at.ok_or_else(|| Failure::new("a signal was sent and not received"))?;
        if number > 0 {
            times.push(at.duration_since(sent));
        }
    }
    let samples = i64::from(bench.sizes.samples);
    bench.expect_completed_soon(samples + 1).await?;
    Ok(Spread::of(times))
}
