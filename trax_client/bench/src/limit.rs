//! Limits on many groups, compared with no limits.

use super::bench_database::{BenchDatabase, expect};
use super::drain::drain_by_sql;
use super::floor::{DRAIN_BATCH, DRAINERS};
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

/// The limit of each group.
const LIMIT: i64 = 2;

/// Groups that exceeded their limit at some time, by the server's clock.
const VIOLATIONS: &str = "with span as (
        select group_name, started_at, finished_at from trax.run where started_at is not null
        union all
        select group_name, started_at, 'infinity' from trax.lease
    ), event as (
        select group_name, started_at as at, 1 as step from span
        union all
        select group_name, finished_at, -1 from span
    ), level as (
        select group_name, sum(step) over (partition by group_name order by at, step) as running from event
    )
    select count(distinct group_name) from level where running > ";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let groups = bench.sizes.groups;
    let each = each(bench);
    let mut figures = Vec::new();
    for (measure, what, set) in [
        ("spread", "those of one group far apart", 1),
        (
            "crowded",
            "those of one group side by side: the limits hold jobs back",
            each,
        ),
    ] {
        let mut rounds: Vec<Round> = Vec::new();
        for number in 0..=bench.sizes.rounds {
            bench.step(&format!(
                "{measure}, round {number} of {}",
                bench.sizes.rounds
            ));
            let floor = Some(drain(bench, 0, set).await?);
            let measured = drain(bench, LIMIT, set).await?;
            if number > 0 {
                rounds.push(Round { measured, floor });
            }
        }
        figures.push(Figure {
            measure: measure.to_owned(),
            unit: Unit::JobsPerSecond,
            what: format!(
                "{} jobs over {groups} groups that may run {LIMIT} each, {what}; {DRAINERS} connections call \
                 trax.complete_and_claim by {DRAIN_BATCH}; counted in trax.run and trax.lease, no group ever ran more",
                each * groups
            ),
            floor: "the same groups and jobs without limits".to_owned(),
            rounds,
        });
    }
    Ok(figures)
}

/// Returns the number of jobs of each group: a tenth of the bulk size, and enough to reach the
/// limit.
fn each(bench: &BenchDatabase) -> i64 {
    (bench.sizes.jobs / 10 / bench.sizes.groups).max(2 * LIMIT)
}

/// Drains all groups under this limit (0 means none), with `set` jobs of a group in a row.
async fn drain(bench: &BenchDatabase, limit: i64, set: i64) -> Result<Sample, Failure> {
    let groups = bench.sizes.groups;
    let jobs = each(bench) * groups;
    bench.clear().await?;
    bench
        .sql(&format!(
            "select count(trax.configure_group('g' || n, max_active_jobs => {limit})) from generate_series(1, {groups}) n"
        ))
        .await?;
    let options = format!(", group_name => 'g' || 1 + b % {groups}");
    bench.load_by(jobs, set, &options).await?;
    bench.settle_queue().await?;
    let cost = drain_by_sql(bench, jobs).await?;
    bench.expect_completed(jobs).await?;
    if limit > 0 {
        let violations = bench.number(&format!("{VIOLATIONS}{limit}")).await?;
        expect("groups over their limit", violations, 0)?;
    }
    Ok(Sample::rate(jobs, cost))
}
