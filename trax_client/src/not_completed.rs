//! The error for a job that did not complete.

use std::fmt;

/// The error for a job that did not complete. Its text has the job's result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotCompleted(pub(crate) String);

impl fmt::Display for NotCompleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotCompleted {}
