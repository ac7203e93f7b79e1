//! What waits in the queue, for tests to look at, and assertions that show it when they fail.

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

/// How many waiting jobs a message shows.
const SHOWN: usize = 20;

/// A job that waits, with its input as a `T`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Enqueued<T = Value> {
    /// The job.
    pub job_id: JobId,
    /// The name of the code that is to run.
    pub task: String,
    /// What it is to work on.
    pub input: T,
    /// Its group.
    pub group_name: String,
    /// 0 to 31.
    pub priority: i16,
    /// Not claimable before this time.
    pub run_at: SystemTime,
    /// How many seconds that is from now; 0 or less when it has come.
    pub due_in: f64,
    /// What keeps it from being claimed: `time`, `key` or `manifest`; none when it is ready.
    pub waits_for: Option<String>,
    /// How many attempts have ended.
    pub attempts: i32,
    /// How many may follow the first; none for the server's default.
    pub max_retries: Option<i32>,
    /// The manifest that it came from.
    pub manifest: Option<String>,
    /// The unique key that it keeps alive.
    pub unique_key: Option<String>,
    /// Jobs with the same one run one at a time.
    pub concurrency_key: Option<String>,
    /// What was given for tracing.
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
            Some(other) => write!(f, ", waiting for its {other}")?,
        }
        match self.attempts {
            0 => Ok(()),
            ended => write!(f, ", for attempt {}", ended + 1),
        }
    }
}

/// Returns the jobs of a task that wait, ready or not, oldest first.
///
/// # Errors
/// When the server refuses, or an input does not fit `T`.
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
/// When there is none; the message shows what waits instead.
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

/// Sees that no job of the task of `T` waits.
///
/// # Panics
/// When one does; the message shows what waits.
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

/// Returns everything that waits, for a person.
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
