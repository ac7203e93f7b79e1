//! Jobs as others see them: where they are, and what became of them.

use std::fmt;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::json::Json;

/// Where a job is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum JobState {
    /// It waits for its first attempt, or the next.
    Queued,
    /// An attempt is being executed.
    InProgress,
    /// It ended well.
    Completed,
    /// It failed for good, and may have a dead letter.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Returns whether nothing more will happen to the job.
    pub fn has_ended(self) -> bool {
        !matches!(self, JobState::Queued | JobState::InProgress)
    }

    fn read(text: &str) -> Result<Self> {
        match text {
            "queued" => Ok(JobState::Queued),
            "in_progress" => Ok(JobState::InProgress),
            "completed" => Ok(JobState::Completed),
            "failed" => Ok(JobState::Failed),
            "cancelled" => Ok(JobState::Cancelled),
            other => Err(Error::Conversion(
                format!(
                    "a job's state is \"{other}\", which this version of the client does not know"
                )
                .into(),
            )),
        }
    }
}

/// A job, wherever it is, without its input.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number.
    pub job_id: JobId,
    /// Where it is.
    pub state: JobState,
    /// How many attempts it had, the one in progress included.
    pub attempt: i32,
    /// The task.
    pub task: String,
    /// The manifest that it came from.
    pub manifest: Option<String>,
    /// Its group.
    pub group_name: String,
    /// 0 to 31.
    pub priority: i32,
    /// It is not claimed before this time.
    pub run_at: SystemTime,
    /// The occurrence of its manifest that it represents.
    pub scheduled_for: Option<SystemTime>,
    /// When it was first queued.
    pub queued_at: SystemTime,
    /// When its last attempt was claimed.
    pub started_at: Option<SystemTime>,
    /// When it ended.
    pub finished_at: Option<SystemTime>,
    /// Who executes or executed it.
    pub worker: Option<String>,
    /// The error of its last attempt, if that failed.
    pub error: Option<String>,
    /// What its handler returned.
    pub output: Option<Json>,
    /// How far it is, as its handler last reported.
    pub progress: Option<Json>,
}

impl Job {
    pub(crate) const COLUMNS: &'static str = "job_id, state, attempt, task, manifest, group_name, \
         priority, run_at, scheduled_for, queued_at, started_at, finished_at, worker, error, \
         output, progress";

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        Ok(Job {
            job_id: JobId(row.try_get("job_id")?),
            state: JobState::read(row.try_get("state")?)?,
            attempt: row.try_get("attempt")?,
            task: row.try_get("task")?,
            manifest: row.try_get("manifest")?,
            group_name: row.try_get("group_name")?,
            priority: row.try_get("priority")?,
            run_at: row.try_get("run_at")?,
            scheduled_for: row.try_get("scheduled_for")?,
            queued_at: row.try_get("queued_at")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            worker: row.try_get("worker")?,
            error: row.try_get("error")?,
            output: row.try_get("output")?,
            progress: row.try_get("progress")?,
        })
    }

    /// Returns what became of it, the output as the type that its handler returns.
    ///
    /// # Errors
    /// When the output does not fit.
    pub fn result<T: DeserializeOwned>(self) -> Result<JobResult<T>> {
        JobResult::of(self.state, self.output, self.error)
    }
}

/// What became of a job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JobResult<T> {
    /// It completed, with this output.
    Completed(T),
    /// It failed for good: the error of its last attempt.
    Failed(String),
    /// It was cancelled, perhaps with a reason.
    Cancelled(Option<String>),
    /// It has not ended.
    NotEnded,
}

impl<T> JobResult<T> {
    /// Returns the output.
    ///
    /// # Errors
    /// When the job did not complete.
    pub fn completed(self) -> std::result::Result<T, NotCompleted> {
        Err(NotCompleted(match self {
            JobResult::Completed(output) => return Ok(output),
            JobResult::Failed(error) => format!("the job failed: {error}"),
            JobResult::Cancelled(None) => "the job was cancelled".to_owned(),
            JobResult::Cancelled(Some(reason)) => format!("the job was cancelled: {reason}"),
            JobResult::NotEnded => "the job has not ended in time".to_owned(),
        }))
    }
}

/// A job that was to complete and did not; its text says what became of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotCompleted(String);

impl fmt::Display for NotCompleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotCompleted {}

impl<T: DeserializeOwned> JobResult<T> {
    fn of(state: JobState, output: Option<Json>, error: Option<String>) -> Result<Self> {
        Ok(match state {
            JobState::Queued | JobState::InProgress => JobResult::NotEnded,
            JobState::Completed => JobResult::Completed(output.unwrap_or_default().read()?),
            JobState::Failed => JobResult::Failed(error.unwrap_or_default()),
            JobState::Cancelled => JobResult::Cancelled(error),
        })
    }

    pub(crate) const COLUMNS: &'static str = "state, output, error";

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        let state = JobState::read(row.try_get("state")?)?;
        Self::of(state, row.try_get("output")?, row.try_get("error")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_completed_job_has_an_output_and_the_others_say_why() {
        let said = |result: JobResult<i32>| result.completed().map_err(|error| error.to_string());
        assert_eq!(said(JobResult::Completed(3)), Ok(3));
        for (result, text) in [
            (
                JobResult::Failed("no paper".to_owned()),
                "the job failed: no paper",
            ),
            (JobResult::Cancelled(None), "the job was cancelled"),
            (
                JobResult::Cancelled(Some("late".to_owned())),
                "the job was cancelled: late",
            ),
            (JobResult::NotEnded, "the job has not ended in time"),
        ] {
            assert_eq!(said(result), Err(text.to_owned()));
        }
    }
}
