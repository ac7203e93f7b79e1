//! The defaults of tasks.

use std::time::Duration;

use tokio_postgres::GenericClient;

use crate::client::Client;
use crate::error::Result;
use crate::sql::{Call, Interval};

/// A change of the defaults of a task, for [`Client::configure_task`]. Values that are not set keep
/// their current value.
#[derive(Clone, Debug, Default)]
pub struct TaskDefaults {
    max_retries: Option<i32>,
    retry_delay: Option<Interval>,
    backoff: Option<f64>,
    retry_delay_max: Option<Interval>,
    timeout: Option<Interval>,
    on_final_failure: Option<String>,
}

impl TaskDefaults {
    /// Returns a change that sets nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the attempts that may follow the first.
    pub fn max_retries(mut self, retries: i32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Sets the delay before the second attempt.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(Interval(delay));
        self
    }

    /// Sets the factor of each further delay, 1 to 100.
    pub fn backoff(mut self, factor: f64) -> Self {
        self.backoff = Some(factor);
        self
    }

    /// Sets the longest delay before an attempt.
    pub fn retry_delay_max(mut self, delay: Duration) -> Self {
        self.retry_delay_max = Some(Interval(delay));
        self
    }

    /// Sets the time limit of one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Interval(timeout));
        self
    }

    /// Sets what a job leaves that fails for good: `dead_letter` (it waits for a person) or
    /// `acknowledge` (a dead letter that is acknowledged already).
    pub fn on_final_failure(mut self, what: impl Into<String>) -> Self {
        self.on_final_failure = Some(what.into());
        self
    }
}

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Creates or changes the defaults of a task, for jobs that are queued from then on.
    pub async fn configure_task(&self, task: &str, defaults: &TaskDefaults) -> Result<()> {
        Call::new("configure_task")
            .arg("task", &task)
            .option("max_retries", &defaults.max_retries)
            .option("retry_delay", &defaults.retry_delay)
            .option("backoff", &defaults.backoff)
            .option("retry_delay_max", &defaults.retry_delay_max)
            .option("timeout", &defaults.timeout)
            .option("on_final_failure", &defaults.on_final_failure)
            .run(self.db())
            .await
    }

    /// Removes the defaults of a task, which then are those of the server.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it has none of its own.
    pub async fn reset_task(&self, task: &str) -> Result<()> {
        Call::new("reset_task")
            .arg("task", &task)
            .run(self.db())
            .await
    }
}
