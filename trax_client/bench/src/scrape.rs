//! A scrape of all metrics, at several sizes of queue and history.

use std::time::Instant;

use super::bench_database::{BenchDatabase, TASK, figure};
use super::report::{Figure, Round, Sample, Unit, median};
use trax_terminal::Failure;

/// The number of runs and of waiting jobs at the small end.
const SMALL: i64 = 1000;
/// The number of groups.
const GROUPS: i64 = 10;
/// More scrapes do not improve the median.
const MOST_LOOKS: u32 = 50;

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    // Filling takes long, so it is measured once, between two measurements of the small end.
    let (runs, jobs) = (bench.sizes.history, bench.sizes.waiting);
    bench.step(&format!("{SMALL} runs and jobs"));
    let before = with(bench, SMALL, SMALL).await?;
    bench.step(&format!("{runs} runs, {jobs} jobs"));
    let full = with(bench, runs, jobs).await?;
    bench.step(&format!("{SMALL} runs and jobs, again"));
    let after = with(bench, SMALL, SMALL).await?;
    let small = before.iter().zip(&after).map(|(a, b)| (a + b) / 2.0);
    let rounds = full.iter().zip(small).map(|(full, small)| Round {
        measured: Sample::bare(*full),
        floor: Some(Sample::bare(small)),
    });
    let what = format!("all of trax.metrics() with {runs} runs and {jobs} waiting jobs");
    let floor = format!("the same with {SMALL} of each, before and after");
    Ok(figure(Unit::Milliseconds, what, &floor, rounds.collect()))
}

/// Returns a median for each round, in milliseconds.
async fn with(bench: &BenchDatabase, runs: i64, jobs: i64) -> Result<Vec<f64>, Failure> {
    bench.clear().await?;
    let history = format!(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task,
             group_name, worker, input)
         select -n, t.at, t.at, t.at, t.at, 1, 0, true, 'completed', '{TASK}', 'group ' || n % {GROUPS}, 'bench', '{{}}'
         from generate_series(1, {runs}) n
         cross join lateral (select now() + n * interval '1 microsecond') t (at)"
    );
    bench.sql(&history).await?;
    for group in 0..GROUPS {
        let options = format!(", group_name => 'group {group}'");
        bench.load(jobs / GROUPS, &options).await?;
    }
    bench.settle_queue().await?;
    bench.sql("analyze trax.run").await?;
    let connection = bench.connect().await?;
    let mut medians = Vec::new();
    for number in 0..=bench.sizes.rounds {
        let mut times = Vec::new();
        for _ in 0..bench.sizes.samples.min(MOST_LOOKS) {
            let sent = Instant::now();
            let sql = "select m.name, m.labels, m.value from trax.metrics() m";
            connection.query_typed(sql, &[]).await?;
            times.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        if number > 0 {
            medians.extend(median(times));
        }
    }
    Ok(medians)
}
