//! The cost of a cycle, with manifests that are not due and with ones that are.
//!
//! The scheduler of the database is paused; every cycle is a call of `trax.tick()` by one session.

use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;

use super::bench_database::{BenchDatabase, expect};
use super::report::{Figure, Round, Sample, Unit, median};
use trax_terminal::Failure;

/// No manifest is due before this time.
const LATER: &str = "clock_timestamp() + interval '1 day' + interval '1 s' * n";
/// Due a moment ago.
const NOW: &str = "clock_timestamp() - interval '1 s'";

pub(crate) async fn manifests(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let (count, groups) = (bench.sizes.manifests, bench.sizes.groups);
    bench
        .hand
        .query_typed("select trax.pause('bench')", &[])
        .await?;
    bench.step("1 manifest");
    store(bench, "few", 1, 1, LATER).await?;
    let few = Ticks::measure(bench).await?;
    bench.step(&format!("storing {count} manifests"));
    store(bench, "many", count, groups, LATER).await?;
    bench.step("never analyzed");
    let unknown = Ticks::measure(bench).await?;
    bench.sql("vacuum (analyze) trax.manifest").await?;
    bench.sql("vacuum (analyze) trax.manifest_state").await?;
    bench.step("analyzed");
    let many = Ticks::measure(bench).await?;

    let rounds = |own: &[f64], floor: &[f64]| -> Vec<Round> {
        let both = own.iter().zip(floor);
        both.map(|(own, floor)| Round {
            measured: Sample::bare(*own),
            floor: Some(Sample::bare(*floor)),
        })
        .collect()
    };
    let figure = |measure: &str, what: &str, rounds| Figure {
        measure: measure.to_owned(),
        unit: Unit::Milliseconds,
        what: format!(
            "a round trip of trax.tick() with {count} manifests in {groups} groups, {what}"
        ),
        floor: "the same with 1 manifest, before the others were stored".to_owned(),
        rounds,
    };
    Ok(vec![
        figure("idle", "none due", rounds(&many.idle, &few.idle)),
        figure(
            "unanalyzed",
            "none due, never analyzed",
            rounds(&unknown.idle, &few.idle),
        ),
        figure("one due", "one due", rounds(&many.one_due, &few.one_due)),
    ])
}

/// Times of cycles in milliseconds, one for each round.
#[derive(Default)]
struct Ticks {
    idle: Vec<f64>,
    one_due: Vec<f64>,
}

impl Ticks {
    async fn measure(bench: &BenchDatabase) -> Result<Self, Failure> {
        let mut ticks = Ticks::default();
        let connection = bench.connect().await?;
        for number in 0..=bench.sizes.rounds {
            let mut times = Vec::new();
            for _ in 0..bench.sizes.samples {
                times.push(tick(&connection, 0).await?);
            }
            let idle = median(times).unwrap_or(0.0);
            arm(
                bench,
                "s.manifest_id = (select max(m.manifest_id) from trax.manifest m)",
            )
            .await?;
            let one_due = tick(&connection, 1).await?;
            bench.sql("truncate trax.work_queue").await?;
            if number > 0 {
                ticks.idle.push(idle);
                ticks.one_due.push(one_due);
            }
        }
        Ok(ticks)
    }
}

pub(crate) async fn firing(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    bench
        .hand
        .query_typed("select trax.pause('bench')", &[])
        .await?;
    store(bench, "due", bench.sizes.due, 1, LATER).await?;
    bench
        .sql("create table bench.state (like trax.manifest_state including all); insert into bench.state select * from trax.manifest_state")
        .await?;
    let (mut at_once, mut by_cycles) = (Vec::new(), Vec::new());
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("round {number} of {}", bench.sizes.rounds));
        let floor = Some(fire_plainly(bench).await?);
        let all = fire(bench, true).await?;
        let some = fire(bench, false).await?;
        if number > 0 {
            at_once.push(Round {
                measured: all,
                floor,
            });
            by_cycles.push(Round {
                measured: some,
                floor,
            });
        }
    }
    let figure = |measure: &str, what: &str, rounds| {
        Figure {
        measure: measure.to_owned(),
        unit: Unit::ManifestsPerSecond,
        what: format!("{} manifests due at once, queued by trax.tick() {what}", bench.sizes.due),
        floor: "one insert-select into a table of the shape of trax.work_queue and one update of a copy of trax.manifest_state"
            .to_owned(),
        rounds,
    }
    };
    Ok(vec![
        figure("at once", "in one cycle", at_once),
        figure(
            "by cycles",
            "in cycles of trax.max_entries_per_cycle",
            by_cycles,
        ),
    ])
}

/// Queues all due manifests, in one cycle or in several.
async fn fire(bench: &BenchDatabase, at_once: bool) -> Result<Sample, Failure> {
    bench.clear().await?;
    arm(bench, "true").await?;
    bench.sql("vacuum (analyze) trax.manifest_state").await?;
    let connection = bench.connect().await?;
    tick_setting(&connection, at_once).await?;
    let due = bench.sizes.due;
    let begun = bench.meter.begin().await?;
    let mut queued = 0;
    while queued < due {
        let (more, _) = run_cycle(&connection).await?;
        if more == 0 {
            break;
        }
        queued += more;
    }
    let cost = bench.meter.end(begun).await?;
    let waiting = bench
        .number("select count(distinct manifest_id) from trax.work_queue")
        .await?;
    expect("manifests queued", waiting, due)?;
    Ok(Sample::rate(due, cost))
}

async fn tick_setting(connection: &Connection, at_once: bool) -> Result<(), Failure> {
    if at_once {
        connection
            .batch_execute("set trax.max_entries_per_cycle = 0")
            .await?;
    }
    Ok(())
}

async fn fire_plainly(bench: &BenchDatabase) -> Result<Sample, Failure> {
    bench.clear().await?;
    bench.sql("vacuum (analyze) bench.state").await?;
    let begun = bench.meter.begin().await?;
    bench
        .sql(
            "begin;
             insert into bench.shape (lane_id, queued_at, run_at, scheduled_for, manifest_id, manifest, scheduled, task, group_name, input)
             select 1, clock_timestamp(), m.next_run_at, m.next_run_at, m.manifest_id, n.name, true, n.task, n.group_name, n.input
             from bench.state m
             join trax.manifest n using (manifest_id);
             update bench.state set next_run_at = next_run_at + interval '1 day', next_scheduled_for = next_run_at;
             commit",
        )
        .await?;
    let cost = bench.meter.end(begun).await?;
    let rows = bench.number("select count(*) from bench.shape").await?;
    expect("rows written", rows, bench.sizes.due)?;
    Ok(Sample::rate(rows, cost))
}

/// Runs one cycle that must queue this many manifests; returns its time in milliseconds.
async fn tick(connection: &Connection, expected: i64) -> Result<f64, Failure> {
    let (queued, time) = run_cycle(connection).await?;
    expect("manifests queued in a cycle", queued, expected)?;
    Ok(time)
}

/// The number of tries while another session runs a cycle: a paused scheduler polls each second.
const TRIES: u32 = 1000;

/// Runs one cycle; returns the number of queued manifests, and its time in milliseconds.
pub(crate) async fn run_cycle(connection: &Connection) -> Result<(i64, f64), Failure> {
    for _ in 0..TRIES {
        let sent = Instant::now();
        let rows = connection
            .query_typed("select step, affected from trax.tick()", &[])
            .await?;
        let time = sent.elapsed().as_secs_f64() * 1e3;
        for row in &rows {
            if row.try_get::<_, &str>(0)? == "queue_due" {
                return Ok((row.try_get(1)?, time));
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(Failure::new("another session runs cycles all the time"))
}

/// Makes these manifests due a moment ago, with no job queued.
async fn arm(bench: &BenchDatabase, which: &str) -> Result<(), Failure> {
    bench
        .sql(&format!(
            "update trax.manifest_state s
             set next_run_at = {NOW}, next_scheduled_for = {NOW}, parked_on = null, parked_since = null, parked_due_at = null
             where {which}"
        ))
        .await
}

/// Stores manifests in batches, each with its own state. Their occurrences are half a year away.
async fn store(
    bench: &BenchDatabase,
    prefix: &str,
    count: i64,
    groups: i64,
    next_run_at: &str,
) -> Result<(), Failure> {
    let month = "1 + (extract(month from now())::int + 5) % 12";
    bench
        .sql(&format!(
            "with made as (
                 insert into trax.manifest (name, task, group_name, cron)
                 select
                     '{prefix}-' || n, 'bench', 'g' || n % {groups},
                     format('%s 0 %s %s *', n % 60, 1 + n % 28, {month})
                 from generate_series(1, {count}) n
                 returning manifest_id, group_name
             ), numbered as (
                 select manifest_id, group_name, row_number() over (order by manifest_id) as n from made
             )
             insert into trax.manifest_state (manifest_id, group_name, next_run_at, next_scheduled_for)
             select manifest_id, group_name, {next_run_at}, {next_run_at} from numbered"
        ))
        .await
}
