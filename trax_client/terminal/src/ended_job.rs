//! Reads an ended job, to queue it again: in place of its open dead letter, by its manifest, or
//! with its own options.

use tokio_postgres::{Error, Row};

const REQUEUE: &str = include_str!("query/ended_job_requeue.sql");
const TRIGGER: &str = include_str!("query/ended_job_trigger.sql");
const ENQUEUE: &str = include_str!("query/ended_job_enqueue.sql");
const ENQUEUE_SQL: &str = include_str!("query/ended_job_enqueue_sql.sql");

/// The columns, which are the parameters of each statement.
const COLUMNS: [&str; 18] = [
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
    "command",
    "run_as",
    "letter",
    "version",
    "rate",
    "rate_key",
    "cost",
];

/// An ended job: its open dead letter, its manifest if that still exists, and its options.
pub struct EndedJob {
    values: [Option<String>; COLUMNS.len()],
    /// The job that its dead letter was requeued as.
    requeued_as: Option<i64>,
    /// The name of the manifest that it came from, which another manifest may have by now.
    came_from: Option<String>,
    queued_at: String,
}

/// How a job is queued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// In place of its dead letter, which keeps all its options and lets its manifest continue.
    DeadLetter,
    /// By its manifest.
    Manifest,
    /// With its task, input, group, priority, version and rate, and the options in its dead letter.
    Enqueue,
    /// As a statement.
    EnqueueSql,
}

impl EndedJob {
    /// The statement that reads an ended job, on the shard where it ended. Its parameter is the job
    /// id as text.
    pub const READ: &str = include_str!("query/ended_job.sql");
    /// The statement that finds the manifest on another shard. Its parameters are those of
    /// [`gone`](Self::gone), as text.
    pub const FIND_MANIFEST: &str = include_str!("query/manifest_since.sql");
    /// The statement that records in `trax.audit` of the shard where it ended that a job was queued
    /// again without its dead letter. Its parameters are the ids of both jobs, as text.
    pub const RECORD: &str = include_str!("query/ended_job_record.sql");

    /// Returns the job in a row of [`READ`](Self::READ).
    pub fn of(row: &Row) -> Result<Self, Error> {
        let mut values = [const { None }; COLUMNS.len()];
        for (value, column) in values.iter_mut().zip(COLUMNS) {
            *value = row.try_get(column)?;
        }
        Ok(EndedJob {
            values,
            requeued_as: row.try_get("requeued_job_id")?,
            came_from: row.try_get("came_from")?,
            queued_at: row.try_get("queued_at")?,
        })
    }

    /// Returns the job that its dead letter was requeued as: this job must not be queued again.
    pub fn requeued_as(&self) -> Option<i64> {
        self.requeued_as
    }

    /// Returns the name of its manifest, and a time at which it existed, if the manifest is not
    /// where the job ended: it was removed, or its group moved to another shard.
    pub fn gone(&self) -> Option<[&str; 2]> {
        let is_needed = matches!(self.again(), Again::Enqueue | Again::EnqueueSql);
        let name = self.came_from.as_deref().filter(|_| is_needed)?;
        Some([name, &self.queued_at])
    }

    /// Records that the manifest was found on another shard.
    pub fn set_found(&mut self) {
        self.values[0].clone_from(&self.came_from);
    }

    /// Returns how the job is queued again.
    pub fn again(&self) -> Again {
        let [manifest, .., command, _, letter, _, _, _, _] = &self.values;
        match (letter, manifest, command) {
            (Some(_), ..) => Again::DeadLetter,
            (_, Some(_), _) => Again::Manifest,
            (.., Some(_)) => Again::EnqueueSql,
            _ => Again::Enqueue,
        }
    }

    /// Returns the parameters of the statement, as text.
    pub fn into_values(self) -> Vec<Option<String>> {
        self.values.into()
    }
}

impl Again {
    /// Returns the statement that queues the job again and returns the new job's id as text. Its
    /// parameters are [`EndedJob::into_values`].
    pub const fn statement(self) -> &'static str {
        match self {
            Again::DeadLetter => REQUEUE,
            Again::Manifest => TRIGGER,
            Again::Enqueue => ENQUEUE,
            Again::EnqueueSql => ENQUEUE_SQL,
        }
    }

    /// Returns the name of the function that the statement calls.
    pub const fn function(self) -> &'static str {
        match self {
            Again::DeadLetter => "requeue_dead_letter",
            Again::Manifest => "trigger",
            Again::Enqueue => "enqueue",
            Again::EnqueueSql => "enqueue_sql",
        }
    }
}
