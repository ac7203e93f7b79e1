//! The result of a job that a test ran inline.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::Error;
use super::enqueued::waiting;
use crate::id::JobId;
use crate::job::Claimed;
use crate::json::Json;

/// The state of the job after an attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// The completion is recorded.
    Completed,
    /// The attempt failed, and the job waits for its next attempt.
    Retrying,
    /// The job failed permanently and has a dead letter.
    Dead,
    /// The job was cancelled, or exceeded its timeout.
    Cancelled,
    /// The job was released without using up an attempt: snoozed, or stopped by a shutdown.
    Released,
    /// The job sleeps, or waits for a signal or its children; no attempt was used up.
    Suspended,
    /// The lease ended before the outcome was reported.
    Lost,
}

/// An attempt that [`Worker::run_one`](crate::Worker::run_one) executed. `Display` writes one line.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The job.
    pub job_id: JobId,
    /// The number of the attempt; 1 is the first.
    pub attempt: i32,
    /// The state of the job after the attempt.
    pub ended: Ended,
    /// The output of the handler, if the job completed.
    pub output: Option<Json>,
    /// The error, if the attempt failed. A panic begins with `panicked: `.
    pub error: Option<String>,
    /// The last progress that the handler reported.
    pub progress: Option<Json>,
}

impl Ran {
    /// Parses the output as `T`.
    ///
    /// # Errors
    /// If the job did not complete, or the output does not fit the type.
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

/// Returns an error that lists the waiting jobs, as none was ready.
pub(crate) async fn nothing_ready<C: GenericClient + Sync>(db: &C, task: &str) -> Error {
    stuck(db, format!("no job of task \"{task}\" is ready")).await
}

/// A job of a tree: one job, its children, and theirs.
pub(crate) struct Living {
    pub(crate) job_id: JobId,
    pub(crate) task: String,
    /// `None` if it is ready.
    pub(crate) waits_for: Option<String>,
    pub(crate) due_in: Duration,
    /// The name of the signal that it waits for.
    pub(crate) signal: Option<String>,
}

const TREE: &str = "with recursive tree as (
        select job_id from trax.work_queue where job_id = $1
        union all
        select q.job_id from tree t join trax.work_queue q on q.parent_job_id = t.job_id
    )
    select
        q.job_id, q.task, q.waits_for,
        greatest(extract(epoch from q.run_at - pg_catalog.clock_timestamp()), 0)::float8 as due_in,
        (
            select s.wait ->> 'name' from trax.step s
            where s.job_id = q.job_id and s.recorded_at is null and s.kind = 'signal' limit 1
        ) as signal
    from tree t join trax.work_queue q on q.job_id = t.job_id
    order by q.job_id";

/// Returns the waiting jobs of a tree, the oldest first.
pub(crate) async fn living<C: GenericClient + Sync>(
    db: &C,
    job_id: JobId,
) -> Result<Vec<Living>, Error> {
    let rows = db.query_typed(TREE, &[(&job_id.0, Type::INT8)]).await?;
    rows.iter()
        .map(|row| {
            let due_in: f64 = row.try_get("due_in")?;
            Ok(Living {
                job_id: JobId(row.try_get("job_id")?),
                task: row.try_get("task")?,
                waits_for: row.try_get("waits_for")?,
                due_in: Duration::try_from_secs_f64(due_in).unwrap_or_default(),
                signal: row.try_get("signal")?,
            })
        })
        .collect()
}

/// Returns an error with the waiting jobs.
pub(crate) async fn stuck<C: GenericClient + Sync>(db: &C, what: String) -> Error {
    match waiting(db).await {
        Ok(waiting) => Error::new(format!("{what}\n{waiting}")),
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
