//! A job whose work is a statement: an executor inside the server runs it, no worker.

use crate::job::JobOptions;

/// A statement to queue as a job.
///
/// ```
/// use trax_client::{JobOptions, SqlJob};
///
/// let job = SqlJob::new("refresh materialized view sales")
///     .with(JobOptions::new().unique_key("refresh sales"));
/// # assert_eq!(job.command, "refresh materialized view sales");
/// ```
#[derive(Clone, Debug)]
pub struct SqlJob {
    /// One statement or several, which are then one transaction.
    pub command: String,
    /// The role in whose session it runs, and whose rights it has; without one the role that
    /// queues it, which must otherwise be a member of this one.
    pub run_as: Option<String>,
    /// How it is queued. A trace is not used: nothing of it reaches a statement.
    pub options: JobOptions,
}

impl SqlJob {
    /// Returns a job with the server's defaults, that runs as the role that queues it.
    pub fn new(command: impl Into<String>) -> Self {
        SqlJob {
            command: command.into(),
            run_as: None,
            options: JobOptions::default(),
        }
    }

    /// Sets the role that runs it.
    pub fn run_as(mut self, role: impl Into<String>) -> Self {
        self.run_as = Some(role.into());
        self
    }

    /// Sets the job's options; those that are not set here stay.
    pub fn with(mut self, options: JobOptions) -> Self {
        self.options = self.options.merged(options);
        self
    }
}
