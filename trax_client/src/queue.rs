//! The depth of the queue, and the attempts of a job.

use std::time::SystemTime;

use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::json::Json;

/// The jobs of one task in one group that can be claimed now.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct QueueDepth {
    /// The name of the task.
    pub task: String,
    /// The name of the group.
    pub group_name: String,
    /// The number of jobs, counted up to the limit of the call.
    pub ready: i64,
    /// When the job that would be claimed first became ready; of several versions, the oldest of
    /// these jobs.
    #[serde(skip)]
    pub first_ready_at: SystemTime,
}

/// Refuses a negative count of rows in the words of the reader.
pub(crate) fn check_count(method: &str, count: i64) -> Result<()> {
    match count {
        0.. => Ok(()),
        _ => Err(Error::Setup(format!(
            "{method} was called with {count}; write how many at most, from 0: {method}(100)"
        ))),
    }
}

/// An ended attempt of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// The number of the attempt, from 1; 0 if the job ended before it was claimed.
    pub attempt: i32,
    /// `completed`, `failed` or `cancelled`.
    pub state: String,
    /// For a failed attempt: `error`, `lease_expired`, `timeout` or `expired`.
    pub failure_kind: Option<String>,
    /// The worker that executed the attempt.
    pub worker: Option<String>,
    /// When the attempt was claimed, by the server's clock.
    #[serde(skip)]
    pub started_at: Option<SystemTime>,
    /// When the attempt ended, by the server's clock.
    #[serde(skip)]
    pub finished_at: SystemTime,
    /// The error message.
    pub error: Option<String>,
    /// The structured detail of the error.
    pub detail: Option<Json>,
    /// The output of the attempt.
    pub output: Option<Json>,
}

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Returns the number of claimable jobs by task and group, without those that have none. Each
    /// is counted up to `count_up_to`, which bounds the cost for a long queue.
    pub async fn queue_depths(&self, count_up_to: i64) -> Result<Vec<QueueDepth>> {
        check_count("queue_depths", count_up_to)?;
        let sql = "select l.task, l.group_name, least(pg_catalog.sum(c.ready), $1)::bigint, pg_catalog.min(l.run_at) \
                   from trax.lane l cross join lateral (\
                       select pg_catalog.count(*) as ready from (\
                           select from trax.work_queue q \
                           where q.lane_id operator(pg_catalog.=) l.lane_id and q.waits_for is null \
                           limit $1) n) c \
                   group by l.task, l.group_name order by l.task, l.group_name";
        let depth = |row: &Row| {
            Ok(QueueDepth {
                task: row.try_get(0)?,
                group_name: row.try_get(1)?,
                ready: row.try_get(2)?,
                first_ready_at: row.try_get(3)?,
            })
        };
        let rows = self.selected(sql, &[(&count_up_to, Type::INT8)]).await?;
        rows.iter().map(depth).collect()
    }

    /// Returns the ended attempts of a job in order. Empty if no attempt has ended, or the history
    /// no longer has them.
    pub async fn attempts(&self, job_id: JobId) -> Result<Vec<Attempt>> {
        let sql = "select attempt, state, failure_kind, worker, started_at, finished_at, error, \
                   detail, output from trax.run where job_id operator(pg_catalog.=) $1 \
                   order by finished_at, attempt";
        let attempt = |row: &Row| {
            Ok(Attempt {
                attempt: row.try_get("attempt")?,
                state: row.try_get("state")?,
                failure_kind: row.try_get("failure_kind")?,
                worker: row.try_get("worker")?,
                started_at: row.try_get("started_at")?,
                finished_at: row.try_get("finished_at")?,
                error: row.try_get("error")?,
                detail: row.try_get("detail")?,
                output: row.try_get("output")?,
            })
        };
        let rows = self.selected(sql, &[(&job_id.0, Type::INT8)]).await?;
        rows.iter().map(attempt).collect()
    }

    async fn selected(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        let rows = self.db().query_typed(sql, arguments).await;
        rows.map_err(|error| Error::from(error).of_read())
    }
}
