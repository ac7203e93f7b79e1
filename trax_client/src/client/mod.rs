//! The functions of trax as typed methods, on any connection or transaction. This file has those
//! that enqueue jobs.

mod graph;
mod manage;
mod rate;
mod result;
mod token;
mod work;
mod workflow;

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::copy_in::CopyIn;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{Cancelled, NewJob, NewJobs, RunNow};
use crate::json::Json;
use crate::sql::{Call, Interval};
use crate::sql_job::SqlJob;
use crate::telemetry::Enqueueing;

/// Calls trax on a connection, or in the caller's own transaction.
///
/// ```no_run
/// # async fn example(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use trax_client::{Client, NewJob};
///
/// let tx = db.transaction().await?;
/// tx.execute("insert into orders (item) values ('tea')", &[]).await?;
/// Client::new(&tx).enqueue(&NewJob::new("order.ship", "tea")).await?;
/// tx.commit().await?; // the order and its job, or neither
/// # Ok(())
/// # }
/// ```
pub struct Client<'a, C> {
    db: &'a C,
    lock_timeout: Option<String>,
}

impl<'a, C: GenericClient + Sync> Client<'a, C> {
    /// Returns a client on this connection or transaction. Opens no connection.
    pub fn new(db: &'a C) -> Self {
        Client {
            db,
            lock_timeout: None,
        }
    }

    /// Sets the lock timeout of claims, heartbeats, outcomes and reports, each of which runs in a
    /// separate transaction.
    pub(crate) fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(format!("{}ms", timeout.as_millis().max(1)));
        self
    }

    /// Returns a call that a worker makes about its jobs.
    fn work<'p>(&'p self, function: &'static str) -> Call<'p> {
        Call::new(function).lock_timeout(self.lock_timeout.as_ref())
    }

    pub(crate) fn db(&self) -> &'a C {
        self.db
    }

    /// Queues one job and returns its id.
    ///
    /// If a job with the same unique key is alive, returns its id and queues nothing.
    pub async fn enqueue<T: Serialize>(&self, job: &NewJob<T>) -> Result<JobId> {
        let input = Json::of(&job.input)?;
        let enqueueing = Enqueueing::of(&job.task, None);
        let trace = enqueueing.trace(job.options.trace.as_ref());
        let call = Call::new("enqueue")
            .arg("task", &job.task)
            .arg("input", &input);
        let call = job.options.apply(call, &trace).value(self.db);
        Ok(JobId(enqueueing.around(call, |id| Some(*id)).await?))
    }

    /// Queues a SQL statement. An executor inside the server runs it.
    pub async fn enqueue_sql(&self, job: &SqlJob) -> Result<JobId> {
        job.check()?;
        let call = Call::new("enqueue_sql")
            .arg("command", &job.command)
            .option("run_as", &job.run_as);
        Ok(JobId(job.options.apply(call, &None).value(self.db).await?))
    }

    /// Queues one job for each input in one call. The ids are in the order of the inputs.
    pub async fn enqueue_many<T: Serialize>(&self, jobs: &NewJobs<'_, T>) -> Result<Vec<JobId>> {
        let NewJobs {
            task,
            inputs,
            options,
        } = jobs;
        let inputs: Vec<Json> = inputs.iter().map(Json::of).collect::<Result<_, _>>()?;
        let enqueueing = Enqueueing::of(task, Some(inputs.len()));
        let trace = enqueueing.trace(options.trace.as_ref());
        let call = Call::new("enqueue_many")
            .arg("task", task)
            .arg("inputs", &inputs);
        let call = options.apply(call, &trace).rows(self.db, "*");
        let rows = enqueueing.around(call, |_| None).await?;
        rows.iter().map(|row| Ok(JobId(row.try_get(0)?))).collect()
    }

    /// Queues any number of jobs in one statement, all or none, each with its own options. Returns
    /// how many the server accepted, including those that queued nothing because a job with the
    /// same unique key is alive. The input of a [`Task`](crate::Task) stands for a job with the
    /// task's options.
    ///
    /// The jobs are read from the iterator one by one, so memory use does not grow with their
    /// number. In a transaction the jobs become claimable when it commits. Behind a transaction
    /// pooler, call this in a transaction.
    ///
    /// ```no_run
    /// # async fn example(db: &tokio_postgres::Client) -> trax_client::Result<()> {
    /// use trax_client::{Client, JobOptions, NewJob};
    ///
    /// let jobs = (0..1_000_000).map(|customer| {
    ///     let key = format!("customer {customer}");
    ///     NewJob::new("invoice", customer).with(JobOptions::new().concurrency_key(key))
    /// });
    /// Client::new(db).enqueue_all(jobs).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If one job causes an error, no job is queued; the message has the row number.
    pub async fn enqueue_all<T: Serialize, J: Into<NewJob<T>>>(
        &self,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<u64> {
        let mut copy = self.copy_in().await?;
        for job in jobs {
            copy.add(&job.into()).await?;
        }
        copy.finish().await
    }

    /// Queues jobs as [`enqueue_all`](Self::enqueue_all) does, one at a time from a stream or a
    /// loop of the caller.
    pub async fn copy_in(&self) -> Result<CopyIn<'_>> {
        CopyIn::begin(self.db.client()).await
    }

    /// Cancels a waiting job, or asks the worker of an executing job to stop; also the living jobs
    /// that it and its children have spawned.
    pub async fn cancel(&self, job_id: JobId) -> Result<Cancelled> {
        self.cancelled(Call::new("cancel").arg("job_id", &job_id.0))
            .await
    }

    /// Cancels a job as [`cancel`](Self::cancel) does, without those that it has spawned.
    pub async fn cancel_alone(&self, job_id: JobId) -> Result<Cancelled> {
        let call = Call::new("cancel").arg("job_id", &job_id.0);
        self.cancelled(call.arg("tree", &false)).await
    }

    async fn cancelled(&self, call: Call<'_>) -> Result<Cancelled> {
        let verdict: String = call.value(self.db).await?;
        match verdict.as_str() {
            "cancelled" => Ok(Cancelled::Cancelled),
            "requested" => Ok(Cancelled::Requested),
            "finished" => Ok(Cancelled::Finished),
            "unknown" => Ok(Cancelled::Unknown),
            other => Err(unknown("trax.cancel", other)),
        }
    }

    /// Makes a job claimable now although its `run_at` or its next attempt lies in the future.
    pub async fn run_now(&self, job_id: JobId) -> Result<RunNow> {
        let verdict: String = Call::new("run_now")
            .arg("job_id", &job_id.0)
            .value(self.db)
            .await?;
        match verdict.as_str() {
            "ready" => Ok(RunNow::Ready),
            "blocked" => Ok(RunNow::Blocked),
            "in_progress" => Ok(RunNow::InProgress),
            "finished" => Ok(RunNow::Finished),
            "unknown" => Ok(RunNow::Unknown),
            other => Err(unknown("trax.run_now", other)),
        }
    }

    /// Limits how long a job may wait, also for a retry, from now or from its `run_at`: a job that
    /// waits longer fails. `None` removes the limit. Returns false if the job is not waiting.
    pub async fn limit_queue_time(
        &self,
        job_id: JobId,
        time_limit: Option<Duration>,
    ) -> Result<bool> {
        let time_limit = time_limit.map(Interval);
        Call::new("limit_queue_time")
            .arg("job_id", &job_id.0)
            .option("time_limit", &time_limit)
            .value(self.db)
            .await
    }
}

pub(crate) fn unknown(function: &str, verdict: &str) -> Error {
    Error::Conversion(
        format!(
            "{function} returned \"{verdict}\", which this version of the client does not know"
        )
        .into(),
    )
}
