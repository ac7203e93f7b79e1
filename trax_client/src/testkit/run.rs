//! What became of one job that a test ran inline.

use std::fmt;

use serde::de::DeserializeOwned;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::Error;
use super::enqueued::waiting;
use crate::id::JobId;
use crate::job::Claimed;
use crate::json::Json;

/// What the server made of an attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// The completion is recorded.
    Completed,
    /// It failed, and waits for its next attempt.
    Retrying,
    /// It failed for good, and has a dead letter.
    Dead,
    /// It was cancelled, or ran over its timeout.
    Cancelled,
    /// It went back without spending an attempt: snoozed, or stopped by a shutdown.
    Released,
    /// The lease was over before the outcome came.
    Lost,
}

/// One attempt that [`Worker::run_one`](crate::Worker::run_one) executed. `Display` writes one
/// line.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The job.
    pub job_id: JobId,
    /// 1 for the first attempt.
    pub attempt: i32,
    /// What became of it.
    pub ended: Ended,
    /// What the handler gave, of a completed one.
    pub output: Option<Json>,
    /// The error of a failed one; a panic begins with `panicked: `.
    pub error: Option<String>,
    /// The last progress that the handler reported.
    pub progress: Option<Json>,
}

impl Ran {
    /// Returns the output as a type of the test's own.
    ///
    /// # Errors
    /// When it did not complete, or the output does not fit.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.ended != Ended::Completed {
            return Err(Error::new(self.to_string()));
        }
        let output = self.output.clone().unwrap_or_default();
        output
            .read()
            .map_err(|error| Error::new(format!("the output {output}: {error}")))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ran {
            job_id,
            attempt,
            ended,
            ..
        } = self;
        let ended = format!("{ended:?}").to_lowercase();
        write!(f, "job {job_id}, attempt {attempt}: {ended}")?;
        match (&self.error, &self.output) {
            (Some(error), _) => write!(f, ": {error}"),
            (None, Some(output)) => write!(f, ": {output}"),
            (None, None) => Ok(()),
        }
    }
}

/// Returns why there was nothing to run.
pub(crate) async fn nothing_ready<C: GenericClient + Sync>(db: &C, task: &str) -> Error {
    match waiting(db).await {
        Ok(waiting) => Error::new(format!("no job of task \"{task}\" is ready\n{waiting}")),
        Err(error) => error,
    }
}

/// Returns the output that a handler recorded in its own transaction.
pub(crate) async fn recorded<C: GenericClient + Sync>(
    db: &C,
    claimed: &Claimed,
) -> Result<Option<Json>, Error> {
    let sql =
        "select output from trax.run where job_id = $1 and attempt = $2 and state = 'completed'";
    let (job_id, attempt) = (claimed.job_id, claimed.attempt);
    let arguments: [(&(dyn ToSql + Sync), Type); 2] =
        [(&job_id.0, Type::INT8), (&attempt, Type::INT4)];
    match db.query_typed(sql, &arguments).await?.first() {
        Some(row) => Ok(row.try_get(0)?),
        None => Err(Error::new(format!(
            "the handler of job {job_id} returned Outcome::Recorded, but no completion is recorded; did its transaction \
             call complete, and commit?"
        ))),
    }
}
