//! Queueing in bulk: `trax.enqueue_many`, and COPY into `trax.new_job`, compared with COPY into a
//! table of the same shape.

use bytes::{BufMut, BytesMut};
use tokio_postgres::Client as Connection;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::bench_database::{BenchDatabase, TASK, expect, figure, payload};
use super::floor;
use super::meter::Cost;
use super::report::{Figure, Sample, Unit};
use trax_terminal::Failure;

const FLOOR: &str = "COPY of as many rows a commit into a table with the columns, constraints and indexes of trax.work_queue";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(
            async || floor::copy(bench).await,
            async || measure(bench, enqueue).await,
        )
        .await?;
    let (jobs, batch) = (bench.sizes.jobs, floor::QUEUE_BATCH);
    let what =
        format!("{jobs} jobs by trax.enqueue_many over 1 connection, {batch} a call and commit");
    Ok(figure(Unit::JobsPerSecond, what, FLOOR, rounds))
}

pub(crate) async fn run_copy(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let rounds = bench
        .rounds(
            async || floor::copy(bench).await,
            async || measure(bench, copy).await,
        )
        .await?;
    let (jobs, batch) = (bench.sizes.jobs, floor::QUEUE_BATCH);
    let what = format!(
        "{jobs} jobs by COPY into trax.new_job over 1 connection, {batch} a statement and commit"
    );
    Ok(figure(Unit::JobsPerSecond, what, FLOOR, rounds))
}

async fn measure(
    bench: &BenchDatabase,
    queue: impl AsyncFn(&BenchDatabase, &Connection, i64) -> Result<Cost, Failure>,
) -> Result<Sample, Failure> {
    let jobs = bench.sizes.jobs;
    bench.clear().await?;
    let cost = queue(bench, &bench.connect().await?, jobs).await?;
    let waiting = bench.number("select count(*) from trax.work_queue").await?;
    expect("jobs waiting", waiting, jobs)?;
    Ok(Sample::rate(jobs, cost))
}

/// Queues this many jobs as a program would, and returns the cost.
pub(crate) async fn enqueue(
    bench: &BenchDatabase,
    connection: &Connection,
    jobs: i64,
) -> Result<Cost, Failure> {
    let sql = format!("select trax.enqueue_many('{TASK}', $1)");
    let statement = connection.prepare_typed(&sql, &[Type::JSONB_ARRAY]).await?;
    let begun = bench.meter.begin().await?;
    for from in (0..jobs).step_by(floor::QUEUE_BATCH as usize) {
        let inputs: Vec<Json> = (from..jobs.min(from + floor::QUEUE_BATCH))
            .map(|n| Json(payload(n)))
            .collect();
        let ids = connection.query(&statement, &[&inputs]).await?;
        expect("ids given", ids.len() as i64, inputs.len() as i64)?;
    }
    bench.meter.end(begun).await
}

async fn copy(bench: &BenchDatabase, connection: &Connection, jobs: i64) -> Result<Cost, Failure> {
    let row = |n| format!("{TASK}\t{}\n", payload(n));
    let begun = bench.meter.begin().await?;
    floor::copy_in(connection, "trax.new_job (task, input)", jobs, row).await?;
    bench.meter.end(begun).await
}

/// JSON that is already text, as in a COPY.
#[derive(Debug)]
pub(crate) struct Json(pub(crate) String);

impl ToSql for Json {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        // The binary format: the version, then the text.
        out.put_u8(1);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}
