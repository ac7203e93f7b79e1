//! Graphs and batches.

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::Client;
use crate::error::Result;
use crate::graph::{Graph, GraphIds, Member, Needed};
use crate::id::JobId;
use crate::job::NewJob;
use crate::json::Json;
use crate::sql::Call;

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Queues the jobs of a graph, all or none, and returns their ids.
    pub async fn enqueue_graph(&self, graph: &Graph) -> Result<GraphIds> {
        self.enqueue_graph_document(&graph.document()?, graph.key().as_deref())
            .await
    }

    /// Queues a graph that is written as the document of `trax.enqueue_graph`.
    pub async fn enqueue_graph_document(
        &self,
        document: &Json,
        unique_key: Option<&str>,
    ) -> Result<GraphIds> {
        let rows = Call::new("enqueue_graph")
            .arg("document", document)
            .option("unique_key", &unique_key)
            .rows(self.db, "name, job_id")
            .await?;
        let pair = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, JobId(row.try_get(1)?)));
        rows.iter().map(pair).collect::<Result<_>>().map(GraphIds)
    }

    /// Opens a batch and returns the id of the job that runs after all jobs of it, which
    /// [`JobOptions::batch`](crate::JobOptions::batch) adds.
    pub async fn open_batch<T: Serialize>(&self, job: &NewJob<T>) -> Result<JobId> {
        let input = Json::of(&job.input)?;
        let trace = job.options.trace.clone();
        let call = Call::new("open_batch")
            .arg("task", &job.task)
            .arg("input", &input);
        let id: i64 = job.options.apply(call, &trace).value(self.db).await?;
        Ok(JobId(id))
    }

    /// Lets the job of a batch run once all jobs of the batch have ended; returns their number.
    pub async fn seal_batch(&self, batch: JobId) -> Result<i64> {
        Call::new("seal_batch")
            .arg("batch", &batch.0)
            .value(self.db)
            .await
    }

    /// Returns the jobs that a job of a graph needed, or all of its batch.
    pub async fn read_needs(&self, job_id: JobId) -> Result<Vec<Needed>> {
        let rows = Call::new("read_needs")
            .arg("id", &job_id.0)
            .rows(self.db, "name, job_id, state, output, error")
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Needed {
                    name: row.try_get(0)?,
                    job_id: JobId(row.try_get(1)?),
                    state: row.try_get(2)?,
                    output: row.try_get(3)?,
                    error: row.try_get(4)?,
                })
            })
            .collect()
    }

    /// Returns all jobs of the graph or batch that a job belongs to; empty if it is of none.
    pub async fn read_graph(&self, job_id: JobId) -> Result<Vec<Member>> {
        let rows = Call::new("read_graph")
            .arg("id", &job_id.0)
            .rows(
                self.db,
                "name, job_id, task, state, needs, condition, waits_for, attempt, started_at, \
                 finished_at, error",
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Member {
                    name: row.try_get(0)?,
                    job_id: JobId(row.try_get(1)?),
                    task: row.try_get(2)?,
                    state: row.try_get(3)?,
                    needs: row.try_get::<_, Option<_>>(4)?.unwrap_or_default(),
                    condition: row.try_get(5)?,
                    waits_for: row.try_get(6)?,
                    attempt: row.try_get(7)?,
                    started_at: row.try_get(8)?,
                    finished_at: row.try_get(9)?,
                    error: row.try_get(10)?,
                })
            })
            .collect()
    }
}
