//! A job that runs a SQL statement: an executor inside the server runs it, not a worker.

use crate::error::{Error, Report, Result};
use crate::job_options::JobOptions;

/// A SQL statement to queue as a job.
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
    /// A SQL statement, or several that form one transaction.
    pub command: String,
    /// The role that the statement runs as, with its rights; by default the role that queues it.
    /// Another role can be set only by a member of that role.
    pub run_as: Option<String>,
    /// The options of the job. A trace is not used, as a statement has no access to it.
    pub options: JobOptions,
}

impl SqlJob {
    /// Returns a job with the server's default options that runs as the role that queues it.
    pub fn new(command: impl Into<String>) -> Self {
        SqlJob {
            command: command.into(),
            run_as: None,
            options: JobOptions::default(),
        }
    }

    /// Sets the role that the statement runs as.
    pub fn run_as(mut self, role: impl Into<String>) -> Self {
        self.run_as = Some(role.into());
        self
    }

    /// Refuses options that a statement cannot have.
    pub(crate) fn check(&self) -> Result<()> {
        let options = &self.options;
        let others = [
            ("version", options.version.is_some()),
            ("batch", options.batch.is_some()),
            ("rate", options.rate.is_some()),
            ("rate_key", options.rate_key.is_some()),
            ("cost", options.cost.is_some()),
        ];
        let Some((name, _)) = others.iter().find(|(_, is_set)| *is_set) else {
            return Ok(());
        };
        Err(Error::InvalidArgument(Report {
            sqlstate: "22023".to_owned(),
            message: format!("a SQL job has no {name}"),
            detail: None,
            hint: Some(format!("Leave out .{name}(...).")),
        }))
    }

    /// Sets options of the job. Options not set in `options` keep their values.
    pub fn with(mut self, options: JobOptions) -> Self {
        self.options = self.options.merged(options);
        self
    }
}
