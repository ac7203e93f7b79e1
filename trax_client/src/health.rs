//! Reports of the server about its state.

use std::time::SystemTime;

use serde::Serialize;
use tokio_postgres::Row;

use crate::error::Result;
use crate::id::JobId;

/// A line of `trax.status()`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct StatusLine {
    /// The item reported.
    pub item: String,
    /// Its present value.
    pub value: Option<String>,
    /// False when action is needed.
    pub healthy: Option<bool>,
    /// The action to take, often a command.
    pub hint: Option<String>,
    /// The number of the shard, if a router reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<i32>,
}

/// A violated invariant, from `trax.check()`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Violation {
    /// The rule.
    pub rule: String,
    /// The row that breaks it.
    pub detail: Option<String>,
    /// The number of the shard, if a router reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<i32>,
}

/// The result of `start_scheduler`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SchedulerStart {
    /// No scheduler was running; now it has started.
    Started,
    /// A scheduler was running already.
    AlreadyRunning,
}

/// A step of a manager cycle and its effect.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Step {
    /// The step's name.
    pub step: String,
    /// How many rows it changed.
    pub affected: i64,
}

/// A job that has failed permanently and waits, or waited, for intervention.
#[derive(Clone, Debug, Serialize)]
pub struct DeadLetter {
    /// The number of the dead letter.
    pub id: i64,
    /// The job.
    pub job_id: JobId,
    /// The manifest that the job came from.
    pub manifest: Option<String>,
    /// The task that failed.
    pub task: String,
    /// `awaiting_intervention`, `requeued` or `acknowledged`.
    pub status: String,
    /// The reason that the job is dead.
    pub reason: Option<String>,
    /// The number of attempts made.
    pub attempts: i32,
    /// The error message of the last attempt.
    pub last_error: Option<String>,
    /// When the dead letter was created.
    #[serde(skip)]
    pub created_at: SystemTime,
}

impl StatusLine {
    pub(crate) const COLUMNS: &'static str = "item, value, healthy, hint, \
        (pg_catalog.to_jsonb(status) ->> 'shard')::int4 as shard";

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        Ok(StatusLine {
            item: row.try_get("item")?,
            value: row.try_get("value")?,
            healthy: row.try_get("healthy")?,
            hint: row.try_get("hint")?,
            shard: row.try_get("shard")?,
        })
    }
}

impl Violation {
    pub(crate) const COLUMNS: &'static str =
        "rule, detail, (pg_catalog.to_jsonb(\"check\") ->> 'shard')::int4 as shard";

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        Ok(Violation {
            rule: row.try_get("rule")?,
            detail: row.try_get("detail")?,
            shard: row.try_get("shard")?,
        })
    }
}

impl Step {
    pub(crate) const COLUMNS: &'static str = "step, affected";

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        Ok(Step {
            step: row.try_get("step")?,
            affected: row.try_get("affected")?,
        })
    }
}

impl DeadLetter {
    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        Ok(DeadLetter {
            id: row.try_get("id")?,
            job_id: JobId(row.try_get("job_id")?),
            manifest: row.try_get("manifest")?,
            task: row.try_get("task")?,
            status: row.try_get("status")?,
            reason: row.try_get("reason")?,
            attempts: row.try_get("attempts")?,
            last_error: row.try_get("last_error")?,
            created_at: row.try_get("created_at")?,
        })
    }
}
