//! Waiting jobs for tests to inspect, and assertions that list them on failure.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use super::Error;
use crate::id::JobId;
use crate::json::Json;
use crate::task::Task;

/// The maximum number of waiting jobs in a message.
const SHOWN: usize = 20;

/// A waiting job, with its input as a `T`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Enqueued<T = Value> {
    /// The job.
    pub job_id: JobId,
    /// The name of the task.
    pub task: String,
    /// The input of the job.
    pub input: T,
    /// The group of the job.
    pub group_name: String,
    /// The priority, 0 to 31.
    pub priority: i16,
    /// The time before which the job cannot be claimed.
    pub run_at: SystemTime,
    /// The seconds from now until `run_at`; 0 or less if it has passed.
    pub due_in: f64,
    /// The reason that the job cannot be claimed: `time`, `key` or `manifest`; `None` if it is
    /// ready.
    pub waits_for: Option<String>,
    /// The number of ended attempts.
    pub attempts: i32,
    /// The number of attempts that may follow the first; `None` for the server's default.
    pub max_retries: Option<i32>,
    /// The manifest that the job came from.
    pub manifest: Option<String>,
    /// The unique key that the job keeps alive.
    pub unique_key: Option<String>,
    /// The concurrency key: jobs with the same key run one at a time.
    pub concurrency_key: Option<String>,
    /// The trace data set at enqueueing.
    pub trace: Option<Json>,
}

impl Enqueued {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(Enqueued {
            job_id: JobId(row.try_get("job_id")?),
            task: row.try_get("task")?,
            input: row.try_get("input")?,
            group_name: row.try_get("group_name")?,
            priority: row.try_get("priority")?,
            run_at: row.try_get("run_at")?,
            due_in: row.try_get("due_in")?,
            waits_for: row.try_get("waits_for")?,
            attempts: row.try_get("attempts")?,
            max_retries: row.try_get("max_retries")?,
            manifest: row.try_get("manifest")?,
            unique_key: row.try_get("unique_key")?,
            concurrency_key: row.try_get("concurrency_key")?,
            trace: row.try_get("trace")?,
        })
    }

    fn typed<T: DeserializeOwned>(self) -> Result<Enqueued<T>, Error> {
        let input = T::deserialize(&self.input)
            .map_err(|error| Error::new(format!("{self}\n  its input: {error}")))?;
        Ok(Enqueued {
            input,
            job_id: self.job_id,
            task: self.task,
            group_name: self.group_name,
            priority: self.priority,
            run_at: self.run_at,
            due_in: self.due_in,
            waits_for: self.waits_for,
            attempts: self.attempts,
            max_retries: self.max_retries,
            manifest: self.manifest,
            unique_key: self.unique_key,
            concurrency_key: self.concurrency_key,
            trace: self.trace,
        })
    }
}

impl fmt::Display for Enqueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Enqueued {
            job_id,
            task,
            input,
            group_name,
            priority,
            ..
        } = self;
        write!(
            f,
            "job {job_id}: {task} {input}, group {group_name}, priority {priority}"
        )?;
        match self.waits_for.as_deref() {
            None => f.write_str(", ready")?,
            Some("time") => write!(f, ", due in {:.1} s", self.due_in)?,
            Some("signal") => write!(f, ", waiting for a signal")?,
            Some("jobs") => write!(f, ", waiting for other jobs")?,
            Some(other) => write!(f, ", waiting for its {other}")?,
        }
        match self.attempts {
            0 => Ok(()),
            ended => write!(f, ", for attempt {}", ended + 1),
        }
    }
}

/// Returns the waiting jobs of a task, ready or not, oldest first.
///
/// # Errors
/// If the server returns an error, or an input does not fit `T`.
pub async fn enqueued<T: Task + DeserializeOwned>(
    db: &(impl GenericClient + Sync),
) -> Result<Vec<Enqueued<T>>, Error> {
    let jobs = all(db).await?;
    jobs.into_iter()
        .filter(|job| job.task == T::NAME)
        .map(Enqueued::typed)
        .collect()
}

/// Returns the oldest waiting job of the task of `T` for which `wanted` is true.
///
/// # Panics
/// If there is none; the message lists the waiting jobs.
#[track_caller]
pub fn assert_enqueued<T: Task + DeserializeOwned>(
    db: &(impl GenericClient + Sync),
    wanted: impl Fn(&Enqueued<T>) -> bool,
) -> impl Future<Output = Enqueued<T>> {
    let asked = Location::caller();
    async move {
        let found = match enqueued::<T>(db).await {
            Ok(jobs) => jobs.into_iter().find(wanted),
            Err(error) => panic!("{asked}: {error}"),
        };
        match found {
            Some(job) => job,
            None => {
                let what = format!("no waiting job of task \"{}\" matches", T::NAME);
                panic!("{}", complaint(db, asked, &what).await)
            }
        }
    }
}

/// Asserts that no job of the task of `T` waits.
///
/// # Panics
/// If one does; the message lists the waiting jobs.
#[track_caller]
pub fn assert_not_enqueued<T: Task>(db: &(impl GenericClient + Sync)) -> impl Future<Output = ()> {
    let asked = Location::caller();
    async move {
        let jobs = all(db)
            .await
            .unwrap_or_else(|error| panic!("{asked}: {error}"));
        if jobs.iter().any(|job| job.task == T::NAME) {
            let what = format!("a job of task \"{}\" is waiting", T::NAME);
            panic!("{}", complaint(db, asked, &what).await)
        }
    }
}

async fn complaint(db: &(impl GenericClient + Sync), asked: &Location<'_>, what: &str) -> String {
    match waiting(db).await {
        Ok(waiting) => format!("{asked}: {what}\n{waiting}"),
        Err(error) => format!("{asked}: {what}; {error}"),
    }
}

/// Returns a readable list of all waiting jobs.
pub(crate) async fn waiting(db: &(impl GenericClient + Sync)) -> Result<String, Error> {
    let jobs = all(db).await?;
    if jobs.is_empty() {
        return Ok("no job is waiting".to_owned());
    }
    let mut lines = vec!["waiting jobs:".to_owned()];
    lines.extend(jobs.iter().take(SHOWN).map(|job| format!("  {job}")));
    if jobs.len() > SHOWN {
        lines.push(format!("  and {} more", jobs.len() - SHOWN));
    }
    Ok(lines.join("\n"))
}

async fn all(db: &(impl GenericClient + Sync)) -> Result<Vec<Enqueued>, Error> {
    let none: [(&(dyn ToSql + Sync), Type); 0] = [];
    let sql = "select job_id, task, input, group_name, priority, run_at, waits_for, attempts, max_retries, manifest, \
               unique_key, concurrency_key, trace, \
               extract(epoch from run_at - pg_catalog.clock_timestamp())::float8 as due_in \
               from trax.work_queue order by job_id";
    let rows = db.query_typed(sql, &none).await?;
    rows.iter().map(Enqueued::from_row).collect()
}
