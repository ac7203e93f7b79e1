//! The state and the result of a job, for callers other than its worker.

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::json::Json;
use crate::not_completed::NotCompleted;

/// The state of a job.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum JobState {
    /// The job waits for its first or next attempt.
    Queued,
    /// An attempt is being executed.
    InProgress,
    /// The job succeeded.
    Completed,
    /// The job failed permanently. A dead letter may exist.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

impl JobState {
    /// Returns whether the state is final.
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

/// A job in any state, without its input.
#[derive(Clone, Debug)]
pub struct Job {
    /// The number of the job.
    pub job_id: JobId,
    /// The state of the job.
    pub state: JobState,
    /// The number of attempts, including one in progress.
    pub attempt: i32,
    /// The task.
    pub task: String,
    /// The manifest that the job came from.
    pub manifest: Option<String>,
    /// The group of the job.
    pub group_name: String,
    /// The priority, 0 to 31.
    pub priority: i32,
    /// The time before which the job is not claimed.
    pub run_at: SystemTime,
    /// The occurrence of the manifest that the job represents.
    pub scheduled_for: Option<SystemTime>,
    /// When the job was first queued.
    pub queued_at: SystemTime,
    /// When the last attempt was claimed.
    pub started_at: Option<SystemTime>,
    /// When the job ended.
    pub finished_at: Option<SystemTime>,
    /// The worker that executes or executed the job.
    pub worker: Option<String>,
    /// The error of the last attempt, if it failed.
    pub error: Option<String>,
    /// The output that the handler returned.
    pub output: Option<Json>,
    /// The progress that the handler last reported.
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

    /// Returns the result, with the output parsed as `T`.
    ///
    /// # Errors
    /// If the output does not fit the type.
    pub fn result<T: DeserializeOwned>(self) -> Result<JobResult<T>> {
        JobResult::of(self.state, self.output, self.error)
    }
}

/// The result of a job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JobResult<T> {
    /// The job completed with this output.
    Completed(T),
    /// The job failed permanently with this error in its last attempt.
    Failed(String),
    /// The job was cancelled, perhaps with a reason.
    Cancelled(Option<String>),
    /// The job has not ended.
    NotEnded,
}

impl<T> JobResult<T> {
    /// Returns the output.
    ///
    /// # Errors
    /// If the job did not complete.
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
