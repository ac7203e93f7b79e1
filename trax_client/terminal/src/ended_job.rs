//! Reads an ended job, to queue it again.

use tokio_postgres::{Error, Row};

const TRIGGER: &str = include_str!("query/ended_job_trigger.sql");
/// The columns, which are the parameters of both statements.
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

/// An ended job: its manifest if that still exists, otherwise its options.
pub struct EndedJob {
    values: [Option<String>; COLUMNS.len()],
    /// The name of the manifest that it came from, which another manifest may have by now.
    came_from: Option<String>,
    queued_at: String,
}

impl EndedJob {
    /// The statement that reads an ended job, on the shard where it ended. Its parameter is the job
    /// id as text.
    pub const READ: &str = include_str!("query/ended_job.sql");
    /// The statement that queues a job again without its manifest; see
    /// [`statement`](Self::statement).
    pub const ENQUEUE: &str = include_str!("query/ended_job_enqueue.sql");
    /// The statement that finds the manifest on another shard. Its parameters are those of
    /// [`gone`](Self::gone), as text.
    pub const FIND_MANIFEST: &str = include_str!("query/manifest_since.sql");

    /// Returns the job in a row of [`READ`](Self::READ).
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

    /// Returns the name of its manifest, and a time at which it existed, if the manifest is not
    /// where the job ended: it was removed, or its group moved to another shard.
    pub fn gone(&self) -> Option<[&str; 2]> {
        let name = self.came_from.as_deref().filter(|_| !self.has_manifest())?;
        Some([name, &self.queued_at])
    }

    /// Records that the manifest was found on another shard.
    pub fn set_found(&mut self) {
        self.values[0].clone_from(&self.came_from);
    }

    /// Returns whether the job is queued through its manifest.
    pub fn has_manifest(&self) -> bool {
        self.values[0].is_some()
    }

    /// Returns the statement that queues the job again and returns the new job's id as text. Its
    /// parameters are [`into_values`](Self::into_values).
    pub fn statement(&self) -> &'static str {
        if self.has_manifest() {
            TRIGGER
        } else {
            Self::ENQUEUE
        }
    }

    /// Returns the parameters of the statement, as text.
    pub fn into_values(self) -> Vec<Option<String>> {
        self.values.into()
    }
}
