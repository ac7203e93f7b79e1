//! The floor: PostgreSQL's own speed, without leases, retries, history and limits.
//!
//! Measured from Rust, with prepared statements over as many connections as trax gets; not with
//! pgbench.

use std::fmt::Write;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures_util::SinkExt;
use tokio_postgres::Client as Connection;

use super::barrier::Barrier;
use super::bench_database::{BenchDatabase, LoadTask, expect, join, payload, spawn};
use super::meter::Cost;
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

pub(crate) const COMMITTERS: i64 = 8;
/// The number of draining connections, and the jobs that each takes at once.
pub(crate) const DRAINERS: i64 = 2;
pub(crate) const DRAIN_BATCH: i64 = 100;
/// The number of jobs queued at once.
pub(crate) const QUEUE_BATCH: i64 = 1000;

pub(crate) const DRAIN_FLOOR: &str = "2 connections that delete by 100 (ctid = any(array(select ctid ... order by id limit 100 for \
     update skip locked)) returning) from a table of bigint and jsonb; its CPU and WAL with COPY into it";

/// Takes jobs out of the plain table.
const TAKE: &str = "delete from bench.plain
    where ctid = any (array(
        select ctid
        from bench.plain
        order by id
        limit 100
        for update skip locked
    ))
    returning id, payload";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let jobs = bench.sizes.jobs;
    let (mut drain, mut copy, mut commit) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("round {number} of {}", bench.sizes.rounds));
        let taken = self::drain(bench).await?;
        let copied = self::copy(bench).await?;
        let committed = self::commit(bench, COMMITTERS).await?;
        if number > 0 {
            for (rounds, measured) in [
                (&mut drain, taken),
                (&mut copy, copied),
                (&mut commit, committed),
            ] {
                rounds.push(Round {
                    measured,
                    floor: None,
                });
            }
        }
    }
    let figure = |measure: &str, unit, what: String, rounds| Figure {
        measure: measure.to_owned(),
        unit,
        what,
        floor: String::new(),
        rounds,
    };
    Ok(vec![
        figure(
            "drain",
            Unit::JobsPerSecond,
            format!("{jobs} jobs, {DRAIN_FLOOR}"),
            drain,
        ),
        figure(
            "copy",
            Unit::JobsPerSecond,
            format!(
                "{jobs} rows by COPY, {QUEUE_BATCH} a statement, into a table with the columns and indexes of trax.work_queue"
            ),
            copy,
        ),
        figure(
            "commit",
            Unit::TransactionsPerSecond,
            format!(
                "{} connections that each insert one row and commit",
                COMMITTERS
            ),
            commit,
        ),
    ])
}

/// Fills the plain table and drains it: the rate of the drain, with CPU and WAL of both.
pub(crate) async fn drain(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = bench.sizes.jobs;
    bench.clear().await?;
    let begun = bench.meter.begin().await?;
    let rows: fn(i64) -> String = |n| format!("{}\n", payload(n));
    copy_in(&bench.connect().await?, "bench.plain (payload)", jobs, rows).await?;
    let filled = bench.meter.end(begun).await?;
    bench.sql("vacuum (analyze) bench.plain").await?;

    let line = Barrier::raise(bench, "bench.plain").await?;
    let taken = Arc::new(AtomicI64::new(0));
    let mut tasks: Vec<LoadTask> = Vec::new();
    for _ in 0..DRAINERS {
        let connection = bench.connect().await?;
        tasks.push(spawn(take_all(connection, jobs, Arc::clone(&taken))));
    }
    let begun = line.go(bench, DRAINERS).await?;
    join(tasks).await?;
    let drained = bench.meter.end(begun).await?;
    expect("rows taken", taken.load(Ordering::Relaxed), jobs)?;
    expect(
        "rows left",
        bench.number("select count(*) from bench.plain").await?,
        0,
    )?;
    Ok(Sample::rate_with(jobs, drained, filled + drained))
}

async fn take_all(connection: Connection, jobs: i64, taken: Arc<AtomicI64>) -> Result<(), Failure> {
    let statement = connection.prepare(TAKE).await?;
    while taken.load(Ordering::Relaxed) < jobs {
        let rows = connection.query(&statement, &[]).await?;
        taken.fetch_add(rows.len() as i64, Ordering::Relaxed);
    }
    Ok(())
}

/// Copies into the table with the shape of the work queue.
pub(crate) async fn copy(bench: &BenchDatabase) -> Result<Sample, Failure> {
    let jobs = bench.sizes.jobs;
    bench.clear().await?;
    let connection = bench.connect().await?;
    let now: String = bench
        .hand
        .query_typed_one("select clock_timestamp()::text", &[])
        .await?
        .try_get(0)?;
    let row = |n| format!("7\t{now}\t{now}\tbench\tdefault\t{}\n", payload(n));
    let begun = bench.meter.begin().await?;
    let table = "bench.shape (lane_id, queued_at, run_at, task, group_name, input)";
    copy_in(&connection, table, jobs, row).await?;
    let cost: Cost = bench.meter.end(begun).await?;
    expect(
        "rows copied",
        bench.number("select count(*) from bench.shape").await?,
        jobs,
    )?;
    Ok(Sample::rate(jobs, cost))
}

/// Copies this many rows, `QUEUE_BATCH` per statement and commit.
pub(crate) async fn copy_in(
    connection: &Connection,
    table: &str,
    rows: i64,
    row: impl Fn(i64) -> String,
) -> Result<(), Failure> {
    let sql = format!("copy {table} from stdin");
    let statement = connection.prepare(&sql).await?;
    for from in (0..rows).step_by(QUEUE_BATCH as usize) {
        let mut text = String::new();
        for n in from..rows.min(from + QUEUE_BATCH) {
            text.write_str(&row(n))
                .map_err(|error| Failure::new(error.to_string()))?;
        }
        let mut sink = pin!(connection.copy_in(&statement).await?);
        sink.send(Bytes::from(text)).await?;
        sink.finish().await?;
    }
    Ok(())
}

/// Inserts one durable row per transaction, over this many connections, for a while.
pub(crate) async fn commit(bench: &BenchDatabase, connections: i64) -> Result<Sample, Failure> {
    bench.clear().await?;
    let mut tasks = Vec::new();
    let line = Barrier::raise(bench, "bench.plain").await?;
    for _ in 0..connections {
        let connection = bench.connect().await?;
        let each = (bench.sizes.jobs / 10 / connections).max(1);
        tasks.push(spawn(async move {
            let statement = connection
                .prepare("insert into bench.plain (payload) values ($1)")
                .await?;
            let value = serde_json::Value::String(payload(1));
            for _ in 0..each {
                connection.execute(&statement, &[&value]).await?;
            }
            Ok(())
        }));
    }
    let begun = line.go(bench, connections).await?;
    join(tasks).await?;
    let cost = bench.meter.end(begun).await?;
    let rows = bench.number("select count(*) from bench.plain").await?;
    Ok(Sample::rate(rows, cost))
}
