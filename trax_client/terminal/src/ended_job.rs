//! What an ended job was queued with, for one that is queued in its place.

use tokio_postgres::{Error, Row};

const TRIGGER: &str = include_str!("query/ended_job_trigger.sql");
/// The columns that are the parameters of both.
const COLUMNS: [&str; 11] = [
    "manifest",
    "task",
    "input",
    "group_name",
    "priority",
    "max_retries",
    "timeout",
    "retry_delay",
    "unique_key",
    "concurrency_key",
    "trace",
];

/// What is known of an ended job: its manifest if that is still there, else its options.
pub struct EndedJob {
    values: [Option<String>; COLUMNS.len()],
    /// The name of the manifest that it came from, which may be another's by now.
    came_from: Option<String>,
    queued_at: String,
}

impl EndedJob {
    /// The statement that reads one where it ended; its parameter is the job, as text.
    pub const READ: &str = include_str!("query/ended_job.sql");
    /// The statement that queues one anew without its manifest; see [`statement`](Self::statement).
    pub const ENQUEUE: &str = include_str!("query/ended_job_enqueue.sql");
    /// The statement that finds its manifest on another shard; its parameters are those of
    /// [`gone`](Self::gone), as text.
    pub const FIND_MANIFEST: &str = include_str!("query/manifest_since.sql");

    /// Returns what a row of [`READ`](Self::READ) says.
    pub fn of(row: &Row) -> Result<Self, Error> {
        let mut values = [const { None }; COLUMNS.len()];
        for (value, column) in values.iter_mut().zip(COLUMNS) {
            *value = row.try_get(column)?;
        }
        Ok(EndedJob {
            values,
            came_from: row.try_get("came_from")?,
            queued_at: row.try_get("queued_at")?,
        })
    }

    /// Returns the name of its manifest and a time at which that existed, if it is not where the
    /// job ended: it is gone, or its group has taken it to another shard.
    pub fn gone(&self) -> Option<[&str; 2]> {
        let name = self.came_from.as_deref().filter(|_| !self.has_manifest())?;
        Some([name, &self.queued_at])
    }

    /// Its manifest was found elsewhere.
    pub fn set_found(&mut self) {
        self.values[0].clone_from(&self.came_from);
    }

    /// Returns whether it is queued by its manifest.
    pub fn has_manifest(&self) -> bool {
        self.values[0].is_some()
    }

    /// Returns the statement that queues it anew and returns the new job's id, as text; its
    /// parameters are [`into_values`](Self::into_values).
    pub fn statement(&self) -> &'static str {
        if self.has_manifest() {
            TRIGGER
        } else {
            Self::ENQUEUE
        }
    }

    /// Returns the values of the statement, as text.
    pub fn into_values(self) -> Vec<Option<String>> {
        self.values.into()
    }
}
