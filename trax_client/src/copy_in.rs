//! Jobs by COPY: any number in one statement, each with options of its own, and memory for one.

use std::error::Error as StdError;
use std::pin::Pin;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::error::Result;
use crate::job::NewJob;
use crate::telemetry::Enqueueing;

const COPY: &str = "copy trax.new_job (task, input, run_at, group_name, priority, max_retries, timeout, \
     unique_key, concurrency_key, trace) from stdin (format binary)";

/// The types of the columns that [`COPY`] names.
const TYPES: [Type; 10] = [
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
];

/// A COPY into the queue that has begun, of [`Client::copy_in`](crate::Client::copy_in).
///
/// Dropped before [`finish`](Self::finish) it queues nothing, and the transaction that it is part of fails.
pub struct CopyIn {
    writer: Pin<Box<BinaryCopyInWriter>>,
    enqueueing: Enqueueing,
    /// What travels with a job that has no trace of its own.
    trace: Option<Value>,
    input: Vec<u8>,
}

impl CopyIn {
    pub(crate) async fn begin(db: &tokio_postgres::Client) -> Result<Self> {
        let sink = db.copy_in(COPY).await?;
        let enqueueing = Enqueueing::of_any();
        Ok(CopyIn {
            writer: Box::pin(BinaryCopyInWriter::new(sink, &TYPES)),
            trace: enqueueing.trace(None),
            enqueueing,
            input: Vec::new(),
        })
    }

    /// Sends one job; waits while the server has not taken those before.
    ///
    /// # Errors
    /// What the server refuses, [`finish`](Self::finish) says.
    pub async fn add<T: Serialize>(&mut self, job: &NewJob<T>) -> Result<()> {
        self.input.clear();
        serde_json::to_writer(&mut self.input, &job.input)?;
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
        ];
        Ok(self.writer.as_mut().write(&row).await?)
    }

    /// Ends the statement; gives how many jobs the server took, those included whose unique key is alive, which queued
    /// nothing.
    ///
    /// # Errors
    /// A mistake in one job, which the message names by its row, leaves none of them.
    pub async fn finish(mut self) -> Result<u64> {
        let writer = self.writer.as_mut();
        let ending = async { Ok(writer.finish().await?) };
        self.enqueueing.around(ending, |_| None).await
    }
}

/// JSON that is text already.
#[derive(Debug)]
struct Json<'a>(&'a [u8]);

impl ToSql for Json<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        // On the wire: the version, then the text.
        out.put_u8(1);
        out.put_slice(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}
