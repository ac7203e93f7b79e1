//! Enqueueing by COPY: any number of jobs in one statement, each with its own options, in constant
//! memory.

use std::error::Error as StdError;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::error::{Error, Result};
use crate::job::NewJob;
use crate::json;
use crate::storable;
use crate::telemetry::Enqueueing;

const COLUMNS: &str = "task, input, run_at, group_name, priority, max_retries, timeout, unique_key, concurrency_key, \
     trace, retry_delay, unique_for, version, batch, rate, rate_key, cost, on_duplicate";

/// The types of [`COLUMNS`].
const TYPES: [Type; 18] = [
    Type::TEXT,
    Type::JSONB,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::INT4,
    Type::INT4,
    Type::INTERVAL,
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::INTERVAL,
    Type::INTERVAL,
    Type::TEXT,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::TEXT,
];

/// A running COPY into the queue, from [`Client::copy_in`](crate::Client::copy_in).
///
/// The COPY begins a transaction if none is open, and [`finish`](Self::finish) commits it. Dropping
/// it before that queues nothing and fails the surrounding transaction.
pub struct CopyIn<'a> {
    writer: Pin<Box<BinaryCopyInWriter>>,
    rollback: Rollback<'a>,
    enqueueing: Enqueueing,
    /// The trace for jobs that set none.
    trace: Option<json::Json>,
    input: Vec<u8>,
}

/// Returns whether a transaction is open. Outside one, a statement's transaction begins at the time
/// of the statement.
async fn is_in_transaction(db: &tokio_postgres::Client) -> Result<bool> {
    let sql = "select pg_catalog.statement_timestamp() operator(pg_catalog.<>) pg_catalog.transaction_timestamp()";
    let messages = db.simple_query(sql).await?;
    let is_true = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"));
    Ok(messages.iter().any(is_true))
}

impl<'a> CopyIn<'a> {
    /// Begins a transaction if there is none. The server acknowledges the end of a lone COPY before
    /// it commits, and the driver reads no further, so a failed commit would go unnoticed.
    pub(crate) async fn begin(db: &'a tokio_postgres::Client) -> Result<Self> {
        let is_own = !is_in_transaction(db).await?;
        let rollback = Rollback { db, is_due: is_own };
        let begin = if is_own { "begin; " } else { "" };
        let refused = |error| Error::from(error).of_call("enqueue");
        // After a COPY that the server refuses before its first row, the driver gives each later
        // call the answer of the one before. The server refuses this statement for the same
        // reasons.
        let nulls = ["null"; TYPES.len()].join(", ");
        let check =
            format!("{begin}insert into trax.new_job ({COLUMNS}) select {nulls} where false");
        db.batch_execute(&check).await.map_err(refused)?;
        let copy = format!("copy trax.new_job ({COLUMNS}) from stdin (format binary)");
        let sink = db.copy_in(&copy).await.map_err(refused)?;
        let enqueueing = Enqueueing::of_any();
        Ok(CopyIn {
            rollback,
            writer: Box::pin(BinaryCopyInWriter::new(sink, &TYPES)),
            trace: enqueueing.trace(None),
            enqueueing,
            input: Vec::new(),
        })
    }

    /// Sends one job. Waits while the send buffer is full.
    ///
    /// # Errors
    /// Errors of the server may surface only in [`finish`](Self::finish).
    pub async fn add<T: Serialize>(&mut self, job: &NewJob<T>) -> Result<()> {
        self.input.clear();
        serde_json::to_writer(&mut self.input, &job.input)?;
        storable::check(&job.input, &self.input)?;
        let options = &job.options;
        let row: [&(dyn ToSql + Sync); TYPES.len()] = [
            &job.task,
            &Json(&self.input),
            &options.run_at,
            &options.group_name,
            &options.priority,
            &options.max_retries,
            &options.timeout,
            &options.unique_key,
            &options.concurrency_key,
            &options.trace.as_ref().or(self.trace.as_ref()),
            &options.retry_delay,
            &options.unique_for,
            &options.version,
            &options.batch,
            &options.rate,
            &options.rate_key,
            &options.cost,
            &options.on_duplicate,
        ];
        Ok(self.writer.as_mut().write(&row).await?)
    }

    /// Ends the statement and returns how many jobs the server accepted, including those that
    /// queued nothing because a job with the same unique key is alive.
    ///
    /// # Errors
    /// If one job caused an error, no job is queued; the message has the row number.
    pub async fn finish(mut self) -> Result<u64> {
        let (writer, rollback) = (self.writer.as_mut(), &mut self.rollback);
        let ending = async {
            let count = writer.finish().await?;
            if std::mem::take(&mut rollback.is_due) {
                rollback.db.batch_execute("commit").await?;
            }
            Ok(count)
        };
        self.enqueueing.around(ending, |_| None).await
    }
}

/// Rolls back the transaction begun for a COPY unless it was committed.
struct Rollback<'a> {
    db: &'a tokio_postgres::Client,
    is_due: bool,
}

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        if !self.is_due {
            return;
        }
        // The first poll sends the statement. The answer need not be awaited: the next statement on
        // this connection runs after it.
        let rollback = pin!(self.db.batch_execute("rollback"));
        drop(rollback.poll(&mut Context::from_waker(Waker::noop())));
    }
}

/// JSON that is already text.
#[derive(Debug)]
struct Json<'a>(&'a [u8]);

impl ToSql for Json<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        // Wire format: a version byte, then the text.
        out.put_u8(1);
        out.put_slice(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}
