//! The contract as typed methods, over any connection or transaction.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::GenericClient;
use uuid::Uuid;

use crate::access::{Access, Role};
use crate::copy_in::CopyIn;
use crate::error::{Error, Result};
use crate::health::{DeadLetter, SchedulerStart, StatusLine, Step, Violation};
use crate::id::{JobId, Token};
use crate::job::{
    Beat, Cancelled, ClaimOptions, Claimed, Failed, Failure, Hastened, JobOptions, NewJob,
};
use crate::json::Json;
use crate::manifest::{Group, Manifest};
use crate::sql::{Call, Interval};
use crate::telemetry::Enqueueing;
use crate::token::{Grant, TokenRequest};

/// Calls trax over a connection, or inside the caller's own transaction.
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
    /// Over this connection or transaction; opens nothing of its own.
    pub fn new(db: &'a C) -> Self {
        Client {
            db,
            lock_timeout: None,
        }
    }

    /// Lets claims, outcomes and what is said of progress, each in a transaction of its own, wait no longer than this for a lock.
    pub(crate) fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(format!("{}ms", timeout.as_millis().max(1)));
        self
    }

    /// Of a worker about its jobs.
    fn work<'p>(&'p self, function: &'static str) -> Call<'p> {
        Call::new(function).lock_timeout(self.lock_timeout.as_ref())
    }

    pub(crate) fn db(&self) -> &'a C {
        self.db
    }

    /// Queues one job and gives its id.
    ///
    /// With a unique key that is alive it gives that job's id and queues nothing.
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

    /// Queues one job an input in one call; the ids are in the order of the inputs.
    pub async fn enqueue_many<T: Serialize>(
        &self,
        task: &str,
        inputs: &[T],
        options: &JobOptions,
    ) -> Result<Vec<JobId>> {
        let inputs: Vec<Json> = inputs.iter().map(Json::of).collect::<Result<_, _>>()?;
        let enqueueing = Enqueueing::of(task, Some(inputs.len()));
        let trace = enqueueing.trace(options.trace.as_ref());
        let call = Call::new("enqueue_many")
            .arg("task", &task)
            .arg("inputs", &inputs);
        let call = options.apply(call, &trace).rows(self.db, "*");
        let rows = enqueueing.around(call, |_| None).await?;
        rows.iter().map(|row| Ok(JobId(row.try_get(0)?))).collect()
    }

    /// Queues any number of jobs in one statement, all or none, each with options of its own; gives how many the server
    /// took, those included whose unique key is alive, which queue nothing.
    ///
    /// They are read one by one and kept nowhere, so that millions need no more memory than one. In a transaction they
    /// become claimable with its commit. Behind a pooler that changes servers between transactions it must be in one.
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
    /// A mistake in one job, which the message names by its row, leaves none of them.
    pub async fn enqueue_all<T: Serialize>(
        &self,
        jobs: impl IntoIterator<Item = NewJob<T>>,
    ) -> Result<u64> {
        let mut copy = self.copy_in().await?;
        for job in jobs {
            copy.add(&job).await?;
        }
        copy.finish().await
    }

    /// The same for jobs that come from a stream or a loop of the caller's own.
    pub async fn copy_in(&self) -> Result<CopyIn> {
        CopyIn::begin(self.db.client()).await
    }

    /// Takes waiting jobs for execution. Commit at once: a lease counts from here.
    pub async fn claim(&self, options: &ClaimOptions) -> Result<Vec<Claimed>> {
        let rows = claiming(self.work("claim_next"), options)
            .rows(self.db, Claimed::COLUMNS)
            .await?;
        rows.iter().map(Claimed::from_row).collect()
    }

    /// Records completions and then takes waiting jobs, in one round trip and one commit: the ids
    /// of the completions recorded, and the jobs.
    pub async fn complete_and_claim(
        &self,
        leases: &[(JobId, Token)],
        outputs: Vec<Option<Json>>,
        options: &ClaimOptions,
    ) -> Result<(Vec<JobId>, Vec<Claimed>)> {
        let (ids, tokens) = split(leases);
        let outputs = given(outputs);
        let call = self
            .work("complete_and_claim")
            .arg("job_ids", &ids)
            .arg("tokens", &tokens)
            .option("outputs", &outputs);
        let columns = format!("completed_job_id, {}", Claimed::COLUMNS);
        let rows = claiming(call, options).rows(self.db, &columns).await?;
        let (mut completed, mut claimed) = (Vec::new(), Vec::new());
        for row in &rows {
            match row.try_get::<_, Option<i64>>(0)? {
                Some(id) => completed.push(JobId(id)),
                None => claimed.push(Claimed::from_row(row)?),
            }
        }
        Ok((completed, claimed))
    }

    /// Returns when work may exist that this connection has not looked for, or after `timeout`
    /// (30 s when not given); a server without the preloaded library looks twice a second.
    ///
    /// Every other call on the connection waits behind it.
    ///
    /// # Errors
    /// [`Error::WrongState`] inside a transaction.
    pub async fn wait_for_work(&self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map(Interval);
        Call::new("wait_for_work")
            .option("timeout", &timeout)
            .procedure(self.db)
            .await
    }

    /// Extends leases, and tells which of them were cancelled or lost.
    pub async fn heartbeat(
        &self,
        leases: &[(JobId, Token)],
        lease: Option<Duration>,
    ) -> Result<Vec<Beat>> {
        self.heartbeat_ahead(leases, lease, &[]).await
    }

    /// The same of a worker that fetches jobs ahead (`ClaimOptions::places`): those of `ahead` have not begun yet.
    pub async fn heartbeat_ahead(
        &self,
        leases: &[(JobId, Token)],
        lease: Option<Duration>,
        ahead: &[JobId],
    ) -> Result<Vec<Beat>> {
        let (ids, tokens) = split(leases);
        let lease = lease.map(Interval);
        let ahead: Option<Vec<i64>> =
            (!ahead.is_empty()).then(|| ahead.iter().map(|job_id| job_id.0).collect());
        let rows = Call::new("heartbeat")
            .arg("job_ids", &ids)
            .arg("tokens", &tokens)
            .option("lease", &lease)
            .option("ahead", &ahead)
            .rows(self.db, "job_id, held, cancel_requested, lease_expires_at")
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Beat {
                    job_id: JobId(row.try_get(0)?),
                    held: row.try_get(1)?,
                    cancel_requested: row.try_get::<_, Option<bool>>(2)?.unwrap_or(false),
                    lease_expires_at: row.try_get(3)?,
                })
            })
            .collect()
    }

    /// Says how far an attempt is: a number, a text or a small document, which `trax.job` shows until the lease ends.
    /// False when the lease was lost.
    pub async fn report_progress<T: Serialize>(
        &self,
        job_id: JobId,
        token: Token,
        progress: &T,
    ) -> Result<bool> {
        let progress = Json::of(progress)?;
        self.work("report_progress")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("progress", &progress)
            .value(self.db)
            .await
    }

    /// The tasks that have jobs ready to be claimed, in any group or in these.
    pub async fn waiting_tasks(&self, groups: Option<&[String]>) -> Result<Vec<String>> {
        let groups = groups.map(<[String]>::to_vec);
        let rows = Call::new("waiting_tasks")
            .option("groups", &groups)
            .rows(self.db, "task")
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Records the completion; false when the lease was lost or the completion recorded before.
    pub async fn complete<T: Serialize>(
        &self,
        job_id: JobId,
        token: Token,
        output: &T,
    ) -> Result<bool> {
        let output = Some(Json::of(output)?).filter(|output| !output.is_null());
        self.work("complete")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .option("output", &output)
            .value(self.db)
            .await
    }

    /// Records many completions in one commit, and gives the ids of those recorded.
    pub async fn complete_many(
        &self,
        leases: &[(JobId, Token)],
        outputs: Vec<Option<Json>>,
    ) -> Result<Vec<JobId>> {
        let (ids, tokens) = split(leases);
        let outputs = given(outputs);
        let rows = self
            .work("complete_many")
            .arg("job_ids", &ids)
            .arg("tokens", &tokens)
            .option("outputs", &outputs)
            .rows(self.db, "*")
            .await?;
        rows.iter().map(|row| Ok(JobId(row.try_get(0)?))).collect()
    }

    /// Records a failed attempt.
    pub async fn fail(&self, job_id: JobId, token: Token, failure: &Failure) -> Result<Failed> {
        let verdict: String = self
            .work("fail")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("error", &failure.error)
            .option("detail", &failure.detail)
            .option("retry_in", &failure.retry_in)
            .option("permanent", &failure.permanent)
            .value(self.db)
            .await?;
        match verdict.as_str() {
            "retrying" => Ok(Failed::Retrying),
            "dead" => Ok(Failed::Dead),
            "lost" => Ok(Failed::Lost),
            other => Err(unknown("trax.fail", other)),
        }
    }

    /// Gives a job back without spending an attempt; false when the lease was lost.
    pub async fn release(
        &self,
        job_id: JobId,
        token: Token,
        delay: Option<Duration>,
    ) -> Result<bool> {
        let delay = delay.map(Interval);
        self.work("release")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .option("delay", &delay)
            .value(self.db)
            .await
    }

    /// Cancels a waiting job, or asks the worker of an executing one to stop.
    pub async fn cancel(&self, job_id: JobId) -> Result<Cancelled> {
        let verdict: String = Call::new("cancel")
            .arg("job_id", &job_id.0)
            .value(self.db)
            .await?;
        match verdict.as_str() {
            "cancelled" => Ok(Cancelled::Cancelled),
            "requested" => Ok(Cancelled::Requested),
            "finished" => Ok(Cancelled::Finished),
            "unknown" => Ok(Cancelled::Unknown),
            other => Err(unknown("trax.cancel", other)),
        }
    }

    /// Makes a job claimable that waits for its next attempt or its time.
    pub async fn run_now(&self, job_id: JobId) -> Result<Hastened> {
        let verdict: String = Call::new("run_now")
            .arg("job_id", &job_id.0)
            .value(self.db)
            .await?;
        match verdict.as_str() {
            "ready" => Ok(Hastened::Ready),
            "blocked" => Ok(Hastened::Blocked),
            "in_progress" => Ok(Hastened::InProgress),
            "finished" => Ok(Hastened::Finished),
            "unknown" => Ok(Hastened::Unknown),
            other => Err(unknown("trax.run_now", other)),
        }
    }

    /// States how long from now, or from its `run_at`, a job may wait: one that waits longer ends as failed. `None` takes
    /// the limit away. False when the job does not wait.
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

    /// Ends an attempt whose cancellation was requested; false when the lease was lost.
    pub async fn acknowledge_cancel(&self, job_id: JobId, token: Token) -> Result<bool> {
        self.work("acknowledge_cancel")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .value(self.db)
            .await
    }

    /// Ends the job of an attempt as cancelled because its worker finds it not worth doing any more; false when the
    /// lease was lost.
    pub async fn cancel_own(
        &self,
        job_id: JobId,
        token: Token,
        reason: Option<&str>,
    ) -> Result<bool> {
        self.work("cancel_own")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .option("reason", &reason)
            .value(self.db)
            .await
    }

    /// Takes the lowest free place of a name; `None` when all are held, or wanted by those who wait. Commit at once.
    pub async fn acquire_token(&self, request: &TokenRequest) -> Result<Option<Grant>> {
        let ttl = Interval(request.ttl);
        let rows = Call::new("acquire_token")
            .arg("name", &request.name)
            .arg("holder", &request.holder)
            .arg("max_holders", &request.max_holders)
            .arg("ttl", &ttl)
            .rows(self.db, Grant::COLUMNS)
            .await?;
        rows.first().map_or(Ok(None), Grant::from_row)
    }

    /// Waits for a place of a name, first come, first served; `None` when the time is up.
    ///
    /// Every other call on the connection waits behind it. The server notices within about a second when the connection
    /// ends, and serves the next one.
    ///
    /// # Errors
    /// [`Error::WrongState`] inside a transaction.
    pub async fn await_token(
        &self,
        request: &TokenRequest,
        wait: Duration,
    ) -> Result<Option<Grant>> {
        let (ttl, wait) = (Interval(request.ttl), Interval(wait));
        let rows = Call::new("await_token")
            .arg("name", &request.name)
            .arg("holder", &request.holder)
            .arg("max_holders", &request.max_holders)
            .arg("ttl", &ttl)
            .arg("wait", &wait)
            .procedure_with_results(self.db, Grant::COLUMNS)
            .await?;
        rows.first().map_or(Ok(None), Grant::from_row)
    }

    /// Holds a token for `ttl` from now; false when it is lost, which it is once it has expired.
    pub async fn extend_token(&self, name: &str, token: Token, ttl: Duration) -> Result<bool> {
        let ttl = Interval(ttl);
        Call::new("extend_token")
            .arg("name", &name)
            .arg("token", &token.0)
            .arg("ttl", &ttl)
            .value(self.db)
            .await
    }

    /// Gives a token back; false when it was lost.
    pub async fn release_token(&self, name: &str, token: Token) -> Result<bool> {
        Call::new("release_token")
            .arg("name", &name)
            .arg("token", &token.0)
            .value(self.db)
            .await
    }

    /// Creates or changes a manifest and gives its number.
    pub async fn schedule(&self, manifest: &Manifest) -> Result<i64> {
        manifest.store(self.db).await
    }

    /// Removes a manifest.
    pub async fn unschedule(&self, name: &str) -> Result<()> {
        Call::new("unschedule")
            .arg("name", &name)
            .run(self.db)
            .await
    }

    /// Switches a manifest on; its misfire policy says what becomes of what it missed while it was off.
    pub async fn enable_manifest(&self, name: &str) -> Result<()> {
        Call::new("enable_manifest")
            .arg("name", &name)
            .run(self.db)
            .await
    }

    /// Switches a manifest off; what waits or runs goes on.
    pub async fn disable_manifest(&self, name: &str) -> Result<()> {
        Call::new("disable_manifest")
            .arg("name", &name)
            .run(self.db)
            .await
    }

    /// Queues a job of a manifest now, with another input if one is given.
    pub async fn trigger(&self, name: &str, input: Option<Value>) -> Result<JobId> {
        let call = Call::new("trigger")
            .arg("name", &name)
            .option("input", &input);
        Ok(JobId(call.value(self.db).await?))
    }

    /// Creates or changes a group.
    pub async fn configure_group(&self, name: &str, group: &Group) -> Result<()> {
        Call::new("configure_group")
            .arg("name", &name)
            .option("max_active_jobs", &group.max_active_jobs)
            .option("priority", &group.priority)
            .option("enabled", &group.enabled)
            .option("max_per_key", &group.max_per_key)
            .run(self.db)
            .await
    }

    /// One manager cycle; empty when another one was running.
    pub async fn tick(&self) -> Result<Vec<Step>> {
        let rows = Call::new("tick").rows(self.db, Step::COLUMNS).await?;
        rows.iter().map(Step::from_row).collect()
    }

    /// Pauses the scheduler of this database until `resume`, also over restarts of the server.
    pub async fn pause(&self, reason: Option<&str>) -> Result<()> {
        Call::new("pause")
            .option("reason", &reason)
            .run(self.db)
            .await
    }

    /// Lets a paused scheduler go on.
    pub async fn resume(&self) -> Result<()> {
        Call::new("resume").run(self.db).await
    }

    /// Makes the jobs in a copy (a restored dump, a clone) this database's own, so that they run.
    pub async fn adopt(&self) -> Result<()> {
        Call::new("adopt").run(self.db).await
    }

    /// Starts the scheduler of this database, until the next restart of a server that does not
    /// preload the library.
    pub async fn start_scheduler(&self) -> Result<SchedulerStart> {
        let verdict: String = Call::new("start_scheduler").value(self.db).await?;
        match verdict.as_str() {
            "started" => Ok(SchedulerStart::Started),
            "already running" => Ok(SchedulerStart::AlreadyRunning),
            other => Err(unknown("trax.start_scheduler", other)),
        }
    }

    /// Gives a role what a level needs; `role` is its name as it is, without quotes.
    pub async fn grant_access(&self, role: &str, level: Access) -> Result<()> {
        Call::new("grant_access")
            .arg("role", &Role(role))
            .arg("level", &level.name())
            .run(self.db)
            .await
    }

    /// What runs, what is missing and what to type.
    pub async fn status(&self) -> Result<Vec<StatusLine>> {
        let rows = Call::new("status")
            .rows(self.db, StatusLine::COLUMNS)
            .await?;
        rows.iter().map(StatusLine::from_row).collect()
    }

    /// The violated invariants; none when healthy.
    pub async fn check(&self) -> Result<Vec<Violation>> {
        let rows = Call::new("check").rows(self.db, Violation::COLUMNS).await?;
        rows.iter().map(Violation::from_row).collect()
    }

    /// The dead letters that wait for a person, oldest first, at most `limit`.
    pub async fn dead_letters(&self, limit: i64) -> Result<Vec<DeadLetter>> {
        let sql = "select id, job_id, manifest, task, status, reason, attempts, last_error, \
                   created_at from trax.dead_letter \
                   where status = 'awaiting_intervention' order by id limit $1";
        let rows = self
            .db
            .query_typed(sql, &[(&limit, tokio_postgres::types::Type::INT8)])
            .await?;
        rows.iter().map(DeadLetter::from_row).collect()
    }

    /// Queues the work of a dead letter again and gives the new job's id.
    pub async fn requeue_dead_letter(&self, id: i64, note: Option<&str>) -> Result<JobId> {
        let call = Call::new("requeue_dead_letter")
            .arg("id", &id)
            .option("note", &note);
        Ok(JobId(call.value(self.db).await?))
    }

    /// Closes a dead letter without running it again; false when it was closed before.
    pub async fn acknowledge_dead_letter(&self, id: i64, note: Option<&str>) -> Result<bool> {
        Call::new("acknowledge_dead_letter")
            .arg("id", &id)
            .option("note", &note)
            .value(self.db)
            .await
    }
}

fn split(leases: &[(JobId, Token)]) -> (Vec<i64>, Vec<Uuid>) {
    leases.iter().map(|(id, token)| (id.0, token.0)).unzip()
}

/// Nobody has an output: say so without a byte a job.
fn given(outputs: Vec<Option<Json>>) -> Option<Vec<Option<Json>>> {
    outputs.iter().any(Option::is_some).then_some(outputs)
}

/// The arguments that both ways to claim have.
fn claiming<'p>(call: Call<'p>, options: &'p ClaimOptions) -> Call<'p> {
    call.option("worker", &options.worker)
        .option("max_jobs", &options.max_jobs)
        .option("tasks", &options.tasks)
        .option("groups", &options.groups)
        .option("lease", &options.lease)
        .option("places", &options.places)
}

fn unknown(function: &str, verdict: &str) -> Error {
    Error::Conversion(
        format!("{function} answered \"{verdict}\", which this client does not know").into(),
    )
}
