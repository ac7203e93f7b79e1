//! The time of one claim, at several numbers of other waiting jobs.
//!
//! Times of single round trips of `trax.claim_next`. They do not wait for the disk
//! (synchronous_commit off), since the question is how much a claim reads.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::bench_database::{BenchDatabase, TASK, figure};
use super::report::{Figure, Round, Sample, Unit, median};
use trax_terminal::Failure;

/// The number of waiting jobs at the shallow end, and behind the blocked ones, in addition to those
/// that will be claimed.
const SHALLOW: i64 = 1000;
const DEADLINE: Duration = Duration::from_secs(60);
/// Claims of a new connection that are not counted.
const WARM_UP: u32 = 20;

pub(crate) async fn depth(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    // A deep queue takes long to fill, so it is measured once, between two measurements of the
    // shallow one.
    bench.step(&format!("{SHALLOW} jobs wait"));
    let before = at_depth(bench, SHALLOW).await?;
    bench.step(&format!("{} jobs wait", bench.sizes.deep));
    let deep = at_depth(bench, bench.sizes.deep).await?;
    bench.step(&format!("{SHALLOW} jobs wait, again"));
    let after = at_depth(bench, SHALLOW).await?;
    let shallow = before.iter().zip(&after).map(|(a, b)| (a + b) / 2.0);
    let rounds = deep.iter().zip(shallow).map(|(deep, shallow)| Round {
        measured: Sample::bare(*deep),
        floor: Some(Sample::bare(shallow)),
    });
    let what = format!(
        "a claim of one of {} jobs that wait, median of {}",
        bench.sizes.deep, bench.sizes.samples
    );
    let floor = format!("the same with {SHALLOW} jobs, before and after");
    Ok(figure(Unit::Milliseconds, what, &floor, rounds.collect()))
}

/// Returns a median for each round, with about this many waiting jobs.
async fn at_depth(bench: &BenchDatabase, jobs: i64) -> Result<Vec<f64>, Failure> {
    bench.clear().await?;
    bench.load(jobs, "").await?;
    let mut medians = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.load(taken(bench), "").await?;
        bench.settle_queue().await?;
        let time = claim_time(bench).await?;
        if number > 0 {
            medians.push(time);
        }
    }
    Ok(medians)
}

pub(crate) async fn blocked(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let sql = "select trax.configure_group('full', max_active_jobs => 1)";
    bench.hand.query_typed(sql, &[]).await?;
    let mut rounds = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("round {number} of {}", bench.sizes.rounds));
        let round = [
            measure(bench, None).await?,
            measure(bench, Some(", group_name => 'full'")).await?,
            measure(bench, Some(", concurrency_key => 'held'")).await?,
        ];
        if number > 0 {
            rounds.push(round);
        }
    }
    let (count, samples) = (bench.sizes.blocked, bench.sizes.samples);
    let figure = |way: usize, way_name: &str, measure: &str, time: fn(&ClaimTimes) -> f64| Figure {
        measure: measure.to_owned(),
        unit: Unit::Milliseconds,
        what: format!(
            "of {SHALLOW} free jobs that wait behind {count} older ones {way_name}: {}",
            if measure.ends_with("first") {
                "all claims together until the first brings a job".to_owned()
            } else {
                format!("a claim, median of the {samples} that follow")
            }
        ),
        floor: "the same free jobs with nothing in front".to_owned(),
        rounds: rounds
            .iter()
            .map(|round| Round {
                measured: Sample::bare(time(&round[way])),
                floor: Some(Sample::bare(time(&round[0]))),
            })
            .collect(),
    };
    let (group, key) = (
        "of a group that is full",
        "behind a concurrency key that is held",
    );
    Ok(vec![
        figure(1, group, "group first", |b| b.first),
        figure(1, group, "group", |b| b.later),
        figure(2, key, "key first", |b| b.first),
        figure(2, key, "key", |b| b.later),
    ])
}

/// Times in milliseconds.
struct ClaimTimes {
    first: f64,
    later: f64,
}

/// Returns the claim times of free jobs behind blocked ones.
async fn measure(bench: &BenchDatabase, options: Option<&str>) -> Result<ClaimTimes, Failure> {
    bench.clear().await?;
    if let Some(options) = options {
        bench.load(bench.sizes.blocked + 1, options).await?;
        // The other jobs wait for this one from now on.
        let sql = "select job_id, token, input from trax.claim_next(lease => '1 day')";
        bench.hand.query_typed_one(sql, &[]).await?;
    }
    bench.load(SHALLOW + taken(bench), "").await?;
    bench.settle_queue().await?;
    Ok(ClaimTimes {
        first: first_claim(bench).await?,
        later: claim_time(bench).await?,
    })
}

/// Claims until a job is returned; the first claims may only move blocked jobs aside.
async fn first_claim(bench: &BenchDatabase) -> Result<f64, Failure> {
    let begun = Instant::now();
    loop {
        let sql = "select job_id, token, input from trax.claim_next(lease => '1 day')";
        if !bench.hand.query_typed(sql, &[]).await?.is_empty() {
            return Ok(begun.elapsed().as_secs_f64() * 1e3);
        }
        if begun.elapsed() > DEADLINE {
            return Err(Failure::new("no claim returned one of the free jobs"));
        }
    }
}

/// Returns the number of jobs that one measurement claims.
pub(crate) fn taken(bench: &BenchDatabase) -> i64 {
    i64::from(bench.sizes.samples + WARM_UP) + 1
}

/// Returns the median of single claims in milliseconds; completions are not timed.
pub(crate) async fn claim_time(bench: &BenchDatabase) -> Result<f64, Failure> {
    let connection = bench.connect().await?;
    connection
        .batch_execute("set synchronous_commit = off")
        .await?;
    let claim = connection
        .prepare("select job_id, token, task from trax.claim_next()")
        .await?;
    let complete = connection
        .prepare_typed("select trax.complete($1, $2)", &[Type::INT8, Type::UUID])
        .await?;
    let mut times = Vec::new();
    for number in 0..bench.sizes.samples + WARM_UP {
        let sent = Instant::now();
        let row = connection.query_opt(&claim, &[]).await?;
        let time = sent.elapsed();
        let row = row.ok_or_else(|| {
            Failure::new(format!(
                "claim {number} returned no job although jobs are waiting"
            ))
        })?;
        let (id, token, task): (i64, Uuid, &str) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if task != TASK {
            return Err(Failure::new(format!(
                "a claim returned a job of task \"{task}\""
            )));
        }
        connection.query_one(&complete, &[&id, &token]).await?;
        if number >= WARM_UP {
            times.push(time.as_secs_f64() * 1e3);
        }
    }
    Ok(median(times).unwrap_or(0.0))
}
