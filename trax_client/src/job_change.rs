//! Changes of waiting jobs.

use std::time::{Duration, SystemTime};

use tokio_postgres::GenericClient;

use crate::client::{Client, unknown};
use crate::error::Result;
use crate::id::JobId;
use crate::json::Json;
use crate::sql::{Call, Interval, Time};

/// New values of a waiting job, for [`Client::change_job`]. Values that are not set stay.
#[derive(Clone, Debug, Default)]
pub struct JobChange {
    input: Option<Json>,
    run_at: Option<Time>,
    priority: Option<i32>,
    group_name: Option<String>,
    max_retries: Option<i32>,
    timeout: Option<Interval>,
}

/// The result of a request to change a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Changed {
    /// The job waits, with the new values.
    Changed,
    /// The job waits for a signal or for other jobs and has no time to change. Nothing has changed.
    Suspended,
    /// The job is executing. Nothing has changed.
    InProgress,
    /// The job has ended.
    Finished,
    /// The job does not exist.
    Unknown,
}

impl JobChange {
    /// Returns a change of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the input.
    pub fn input(mut self, input: impl Into<Json>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Sets the time before which the job cannot be claimed.
    pub fn run_at(mut self, at: SystemTime) -> Self {
        self.run_at = Some(Time(at));
        self
    }

    /// Sets the priority, 0 to 31.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the group. A job of a manifest stays in its group.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group_name = Some(name.into());
        self
    }

    /// Sets the attempts that may follow the first.
    pub fn max_retries(mut self, retries: i32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Sets the time limit of one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Interval(timeout));
        self
    }
}

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Changes a job while it waits. Its id, age, attempts, steps and keys stay.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if nothing is set;
    /// [`Error::WrongState`](crate::Error::WrongState) for another group of a manifest's job.
    pub async fn change_job(&self, job_id: JobId, change: &JobChange) -> Result<Changed> {
        let verdict: String = Call::new("change_job")
            .arg("job_id", &job_id.0)
            .option("input", &change.input)
            .option("run_at", &change.run_at)
            .option("priority", &change.priority)
            .option("group_name", &change.group_name)
            .option("max_retries", &change.max_retries)
            .option("timeout", &change.timeout)
            .value(self.db())
            .await?;
        match verdict.as_str() {
            "changed" => Ok(Changed::Changed),
            "suspended" => Ok(Changed::Suspended),
            "in_progress" => Ok(Changed::InProgress),
            "finished" => Ok(Changed::Finished),
            "unknown" => Ok(Changed::Unknown),
            other => Err(unknown("trax.change_job", other)),
        }
    }
}
