//! The cost that enqueueing adds to transactions that commit anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;

use super::bench_database::{BenchDatabase, TASK, expect, join, payload, spawn};
use super::enqueue::Json;
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

pub(crate) const PRODUCERS: i64 = 32;

pub(crate) const FLOOR: &str = "the same with a function (plpgsql) that inserts an identical row into a table of the shape of trax.work_queue, and \
     wakes nobody";

/// The call that a producer adds to its own insert.
pub(crate) const PLAIN: &str = "select bench.enqueue($1, $2)";
const TRAX: &str = "select trax.enqueue($1, $2)";
const NOTIFY: &str = "select bench.enqueue($1, $2), pg_catalog.pg_notify('bench_work', '')";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    make_tables(bench).await?;
    // Notifications are only sent if a session listens.
    let listener = bench.connect().await?;
    listener
        .batch_execute("listen trax_work; listen bench_work")
        .await?;

    let (mut with_trax, mut with_notify) = (Vec::new(), Vec::new());
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("round {number} of {}", bench.sizes.rounds));
        let floor = Some(produce(bench, PLAIN, "bench.shape").await?);
        let trax = produce(bench, TRAX, "trax.work_queue").await?;
        let notify = produce(bench, NOTIFY, "bench.shape").await?;
        if number > 0 {
            with_trax.push(Round {
                measured: trax,
                floor,
            });
            with_notify.push(Round {
                measured: notify,
                floor,
            });
        }
    }
    let figure = |measure: &str, call: &str, rounds| Figure {
        measure: measure.to_owned(),
        unit: Unit::TransactionsPerSecond,
        what: format!(
            "{PRODUCERS} connections that commit an insert into a table of their own and {call}, {:?}, one session listens",
            bench.sizes.seconds
        ),
        floor: FLOOR.to_owned(),
        rounds,
    };
    Ok(vec![
        figure("enqueue", "trax.enqueue, which wakes who waits", with_trax),
        figure(
            "notify",
            "the floor's function with a NOTIFY beside it, for comparison",
            with_notify,
        ),
    ])
}

/// Makes a table for each producer.
pub(crate) async fn make_tables(bench: &BenchDatabase) -> Result<(), Failure> {
    for number in 0..PRODUCERS {
        let sql = format!(
            "create table bench.own_{number} (id bigint generated always as identity primary key, item text)"
        );
        bench.sql(&sql).await?;
    }
    Ok(())
}

/// Runs all producers for a while; returns the number of committed transactions.
pub(crate) async fn produce(
    bench: &BenchDatabase,
    call: &str,
    table: &str,
) -> Result<Sample, Failure> {
    bench.clear().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let committed = Arc::new(AtomicI64::new(0));
    let mut tasks = Vec::new();
    for number in 0..PRODUCERS {
        let sql =
            format!("with own as (insert into bench.own_{number} (item) values ('tea')) {call}");
        let connection = bench.connect().await?;
        let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
        tasks.push(spawn(commit_until(connection, sql, stop, committed)));
    }
    // The first transactions of each connection fill its caches.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = committed.load(Ordering::Relaxed);
    let begun = bench.meter.begin().await?;
    tokio::time::sleep(bench.sizes.seconds).await;
    let count = committed.load(Ordering::Relaxed) - before;
    let cost = bench.meter.end(begun).await?;
    stop.store(true, Ordering::Relaxed);
    join(tasks).await?;
    let rows = bench
        .number(&format!("select count(*) from {table}"))
        .await?;
    expect("jobs queued", rows, committed.load(Ordering::Relaxed))?;
    Ok(Sample::rate(count, cost))
}

async fn commit_until(
    connection: Connection,
    sql: String,
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicI64>,
) -> Result<(), Failure> {
    let statement = connection
        .prepare_typed(&sql, &[Type::TEXT, Type::JSONB])
        .await?;
    let input = Json(payload(1));
    while !stop.load(Ordering::Relaxed) {
        connection.query(&statement, &[&TASK, &input]).await?;
        committed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
