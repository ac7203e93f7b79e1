//! The error of a cron text: its message, its position and what to type instead.

use std::fmt;

/// A cron text that is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    /// The position of the error in the text, in characters counted from 1; one past the end when
    /// something is missing there.
    pub position: usize,
    /// The error, in lower case and without a full stop.
    pub message: String,
    /// The text to type: full sentences.
    pub hint: String,
}

impl CronError {
    pub(super) fn new(
        position: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> CronError {
        CronError {
            position,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.message, self.position)
    }
}

impl std::error::Error for CronError {}
