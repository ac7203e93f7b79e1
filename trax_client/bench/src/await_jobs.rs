//! Many callers in one process that wait for jobs, over one connection.
//!
//! Each waits for a separate executing job. The time is measured from sending a completion until
//! the caller of that job has the output; the floor is the completion alone, without waiting
//! callers.

use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::{JobId, JobResult, JobWaiter};
use uuid::Uuid;

use super::bench_database::{BenchDatabase, TASK, expect, join, spawn};
use super::latency::Spread;
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

const DEADLINE: Duration = Duration::from_secs(60);
/// The pause between two jobs, after which the call sleeps.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of jobs that one call completes at the end.
const BATCH: usize = 100;

/// The waiter's connection, once its call sleeps.
const ASLEEP: &str = "select min(a.pid) from pg_stat_activity a
    where a.application_name = 'trax job waiter' and a.datname = current_database()
        and a.wait_event_type = 'Extension' and a.query_start < clock_timestamp() - interval '300 ms'";
const CONNECTIONS: &str = "select count(*) from pg_stat_activity a
    where a.application_name = 'trax job waiter' and a.datname = current_database()";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let callers = bench.sizes.callers;
    let mut rounds: Vec<[(Spread, f64); 2]> = Vec::new();
    let mut memory = String::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!(
            "round {number} of {}, nobody waits",
            bench.sizes.rounds
        ));
        let alone = alone(bench).await?;
        bench.step(&format!(
            "round {number} of {}, {callers} wait",
            bench.sizes.rounds
        ));
        let awaited = awaited(bench, &mut memory).await?;
        if number > 0 {
            rounds.push([alone, awaited]);
        }
    }
    let samples = bench.sizes.samples;
    let mut figures: Vec<Figure> = (Spread::PARTS.iter().enumerate())
        .map(|(part, percentile)| Figure {
            measure: (*percentile).to_owned(),
            unit: Unit::Milliseconds,
            what: format!(
                "trax.complete sent to its output at the caller, {samples} single jobs of {callers} that are \
                 waited for; {memory}"
            ),
            floor: "the answer to trax.complete while nobody waits".to_owned(),
            rounds: rounds_of(&rounds, |(spread, _)| spread.0[part]),
        })
        .collect();
    figures.push(Figure {
        measure: "all".to_owned(),
        unit: Unit::Milliseconds,
        what: format!(
            "trax.complete_many by {BATCH} of the others to the last answer, {} jobs",
            callers - i64::from(samples)
        ),
        floor: "the same calls while nobody waits".to_owned(),
        rounds: rounds_of(&rounds, |(_, rest)| *rest),
    });
    Ok(figures)
}

fn rounds_of(rounds: &[[(Spread, f64); 2]], of: impl Fn(&(Spread, f64)) -> f64) -> Vec<Round> {
    let rounds = rounds.iter().map(|[alone, awaited]| Round {
        measured: Sample::bare(of(awaited)),
        floor: Some(Sample::bare(of(alone))),
    });
    rounds.collect()
}

/// Returns executing jobs with their tokens.
async fn executing(bench: &BenchDatabase) -> Result<Vec<(i64, Uuid)>, Failure> {
    bench.clear().await?;
    bench.load(bench.sizes.callers, "").await?;
    let mut held = Vec::new();
    loop {
        let sql = "select job_id, token from trax.claim_next(max_jobs => 1000, lease => '1 h')";
        let rows = bench.hand.query_typed(sql, &[]).await?;
        if rows.is_empty() {
            return Ok(held);
        }
        for row in rows {
            held.push((row.try_get(0)?, row.try_get(1)?));
        }
    }
}

async fn complete(connection: &Connection, (id, token): (i64, Uuid)) -> Result<(), Failure> {
    let sql = "select trax.complete($1, $2, to_jsonb($1))";
    connection
        .query_typed_one(sql, &[(&id, Type::INT8), (&token, Type::UUID)])
        .await?;
    Ok(())
}

/// Completes jobs in batches.
async fn complete_all(connection: &Connection, jobs: &[(i64, Uuid)]) -> Result<(), Failure> {
    for batch in jobs.chunks(BATCH) {
        let (ids, tokens): (Vec<i64>, Vec<Uuid>) = batch.iter().copied().unzip();
        let sql = "select trax.complete_many($1, $2, array(select to_jsonb(i) from unnest($1) i))";
        let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&ids, Type::INT8_ARRAY), (&tokens, Type::UUID_ARRAY)];
        connection.query_typed(sql, &arguments).await?;
    }
    Ok(())
}

async fn alone(bench: &BenchDatabase) -> Result<(Spread, f64), Failure> {
    let held = executing(bench).await?;
    let connection = bench.connect().await?;
    let mut times = Vec::new();
    let mut jobs = held.into_iter();
    for job in jobs.by_ref().take(bench.sizes.samples as usize) {
        let sent = Instant::now();
        complete(&connection, job).await?;
        times.push(sent.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    let sent = Instant::now();
    complete_all(&connection, jobs.as_slice()).await?;
    Ok((Spread::of(times), sent.elapsed().as_secs_f64() * 1e3))
}

async fn awaited(bench: &BenchDatabase, memory: &mut String) -> Result<(Spread, f64), Failure> {
    let held = executing(bench).await?;
    let connection = bench.connect().await?;
    let before = resident("self");
    let mut address = bench.config();
    address.application_name("trax job waiter");
    let waiter = JobWaiter::new(address);
    let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let callers = held.iter().map(|&(id, _)| {
        let (waiter, answers) = (waiter.clone(), answers.clone());
        spawn(async move {
            let result = waiter.await_job::<i64>(JobId(id), DEADLINE * 10).await?;
            match result {
                JobResult::Completed(output) if output == id => {
                    answers.send((id, Instant::now())).ok();
                    Ok(())
                }
                other => Err(Failure::new(format!("job {id}: {other:?}"))),
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let pid = asleep(bench).await?;
    // Measured in the first round, since later ones reuse freed memory.
    if memory.is_empty() {
        *memory = format!(
            "{} connection, {} KiB of the client's process and {} of its backend",
            bench.number(CONNECTIONS).await?,
            resident("self") - before,
            resident(&pid.to_string()),
        );
    }
    let samples = bench.sizes.samples as usize;
    let mut times = Vec::new();
    let mut jobs = held.into_iter();
    for job in jobs.by_ref().take(samples) {
        let sent = Instant::now();
        complete(&connection, job).await?;
        let answer = tokio::time::timeout(DEADLINE, answered.recv()).await;
        let (id, at) = answer
            .ok()
            .flatten()
            .ok_or_else(|| Failure::new("no answer"))?;
        expect("the job that was answered", id, job.0)?;
        times.push(at.duration_since(sent));
        tokio::time::sleep(PAUSE).await;
    }
    let sent = Instant::now();
    complete_all(&connection, jobs.as_slice()).await?;
    join(callers).await?;
    let took = sent.elapsed().as_secs_f64() * 1e3;
    bench.expect_completed(bench.sizes.callers).await?;
    Ok((Spread::of(times), took))
}

/// Waits until the waiter sleeps with all callers; returns its backend's process id.
async fn asleep(bench: &BenchDatabase) -> Result<i32, Failure> {
    let begun = Instant::now();
    loop {
        let row = bench.hand.query_typed_one(ASLEEP, &[]).await?;
        if let Some(pid) = row.try_get(0)? {
            return Ok(pid);
        }
        if begun.elapsed() > DEADLINE {
            return Err(Failure::new(format!("nobody waits for jobs of {TASK}")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The resident memory of a process, in KiB; 0 if unknown.
fn resident(process: &str) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}
