//! Claims, heartbeats and outcomes.

use super::{Client, unknown};
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::GenericClient;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::id::{JobId, Token};
use crate::job::{Beat, ClaimOptions, Claimed, ClaimedPlaces, Failed, Failure};
use crate::json::Json;
use crate::note::Note;
use crate::reached;
use crate::sql::{Call, Interval};

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Claims waiting jobs, in the order of group priority, own priority and age. Commit at once:
    /// the leases begin with this call.
    pub async fn claim(&self, options: &ClaimOptions) -> Result<Vec<Claimed>> {
        let rows = claiming(self.work("claim_next"), options)
            .rows(self.db, Claimed::COLUMNS)
            .await?;
        let places = ClaimedPlaces::of(&rows);
        rows.iter()
            .map(|row| Claimed::from_row(row, &places))
            .collect()
    }

    /// Records completions and then claims waiting jobs, in one round trip and one commit. Returns
    /// the ids of the recorded completions and the claimed jobs.
    pub async fn complete_and_claim(
        &self,
        leases: &[(JobId, Token)],
        outputs: Vec<Option<Json>>,
        options: &ClaimOptions,
    ) -> Result<(Vec<JobId>, Vec<Claimed>)> {
        let (ids, tokens) = split(leases);
        let outputs = any_output(outputs);
        let call = self
            .work("complete_and_claim")
            .arg("job_ids", &ids)
            .arg("tokens", &tokens)
            .option("outputs", &outputs);
        let columns = format!("completed_job_id, {}", Claimed::COLUMNS);
        let rows = claiming(call, options).rows(self.db, &columns).await?;
        let places = ClaimedPlaces::of(&rows);
        let (mut completed, mut claimed) = (Vec::new(), Vec::new());
        for row in &rows {
            match row.try_get::<_, Option<i64>>(0)? {
                Some(id) => completed.push(JobId(id)),
                None => claimed.push(Claimed::from_row(row, &places)?),
            }
        }
        Ok((completed, claimed))
    }

    /// Returns when there may be jobs that this connection has not tried to claim, or after
    /// `timeout` (30 s by default). If the library is not preloaded, the server checks twice a
    /// second.
    ///
    /// Other calls on the connection wait until this one returns.
    ///
    /// # Errors
    /// [`Error::WrongState`](crate::Error::WrongState) inside a transaction.
    pub async fn wait_for_work(&self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map(Interval);
        Call::new("wait_for_work")
            .option("timeout", &timeout)
            .procedure(self.db)
            .await
    }

    /// Extends leases and records that their jobs have begun. Returns for each lease whether it is
    /// still held and whether the job should stop.
    pub async fn heartbeat(
        &self,
        leases: &[(JobId, Token)],
        lease: Option<Duration>,
    ) -> Result<Vec<Beat>> {
        self.heartbeat_ahead(leases, lease, &[]).await
    }

    /// Extends leases as [`heartbeat`](Self::heartbeat) does, for a worker that fetches jobs ahead
    /// (`ClaimOptions::places`). The jobs in `ahead` have not begun yet.
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
        let rows = self
            .work("heartbeat")
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

    /// Reports the progress of an attempt: a number, a text or a small document, which `trax.job`
    /// shows until the lease ends. Returns false if the lease was lost.
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

    /// Registers a worker, even one without jobs, and records that it is alive. A worker that has
    /// not reported for two `period`s counts as gone. [`Worker`](crate::Worker) calls this by
    /// itself. Returns false if another transaction held the worker's row; nothing is recorded
    /// then.
    pub(crate) async fn report_worker(
        &self,
        name: &str,
        period: Duration,
        state: &str,
        info: Option<Json>,
    ) -> Result<bool> {
        let period = Interval(period);
        self.work("report_worker")
            .arg("name", &name)
            .arg("period", &period)
            .arg("state", &state)
            .option("info", &info)
            .value(self.db)
            .await
    }

    /// Returns the tasks that have claimable jobs, in all groups or in these.
    pub async fn waiting_tasks(&self, groups: Option<&[String]>) -> Result<Vec<String>> {
        let groups = groups.map(<[String]>::to_vec);
        let rows = Call::new("waiting_tasks")
            .option("groups", &groups)
            .rows(self.db, "task")
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Records the completion. Returns false if the lease was lost or the completion was recorded
    /// before. A handler that calls this returns
    /// [`Outcome::Recorded`](crate::Outcome::Recorded).
    pub async fn complete<T: Serialize>(
        &self,
        job_id: JobId,
        token: Token,
        output: &T,
    ) -> Result<bool> {
        let output = Some(Json::of(output)?).filter(|output| !output.is_null());
        if reached::needs_names(token) {
            let steps = self.read_steps(job_id).await?;
            reached::were_recorded(token, steps.into_iter().map(|step| step.step));
        }
        let held = self
            .record(job_id, token, &output, &Note::of(token))
            .await?;
        if held {
            reached::complete(token);
        }
        Ok(held)
    }

    /// Records the completion, with a note in its detail.
    pub(crate) async fn record(
        &self,
        job_id: JobId,
        token: Token,
        output: &Option<Json>,
        note: &Note,
    ) -> Result<bool> {
        let detail = note.json();
        self.work("complete")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .option("output", output)
            .option("detail", &detail)
            .value(self.db)
            .await
    }

    /// Records many completions in one commit, and returns the ids of the recorded ones.
    pub async fn complete_many(
        &self,
        leases: &[(JobId, Token)],
        outputs: Vec<Option<Json>>,
    ) -> Result<Vec<JobId>> {
        let (ids, tokens) = split(leases);
        if outputs.len() != leases.len() {
            return Err(Error::Setup(format!(
                "complete_many was called with {} leases and {} outputs; give each lease an output or None",
                leases.len(),
                outputs.len()
            )));
        }
        let outputs = any_output(outputs);
        let rows = self
            .work("complete_many")
            .arg("job_ids", &ids)
            .arg("tokens", &tokens)
            .option("outputs", &outputs)
            .rows(self.db, "*")
            .await?;
        rows.iter().map(|row| Ok(JobId(row.try_get(0)?))).collect()
    }

    /// Records a failed attempt. A job that was cancelled ends as cancelled, which is returned as
    /// [`Failed::Dead`].
    pub async fn fail(&self, job_id: JobId, token: Token, failure: &Failure) -> Result<Failed> {
        let verdict: String = self
            .work("fail")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("error", &failure.error)
            .option("detail", &failure.detail)
            .option("retry_in", &failure.retry_in)
            .option("permanent", &failure.permanent)
            .option("close_rate", &failure.close_rate)
            .value(self.db)
            .await?;
        match verdict.as_str() {
            "retrying" => Ok(Failed::Retrying),
            "dead" => Ok(Failed::Dead),
            "lost" => Ok(Failed::Lost),
            other => Err(unknown("trax.fail", other)),
        }
    }

    /// Releases a job without using up an attempt; claimable again now or after `delay`. Returns
    /// false if the lease was lost.
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

    /// Ends an attempt that was asked to stop: as cancelled, or after its timeout as failed.
    /// Returns false if the lease was lost, or if no stop was requested and the timeout is not
    /// over.
    pub async fn acknowledge_cancel(&self, job_id: JobId, token: Token) -> Result<bool> {
        self.work("acknowledge_cancel")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .value(self.db)
            .await
    }

    /// Ends the job of an attempt as cancelled on the worker's own decision; no retry and no dead
    /// letter follows. Returns false if the lease was lost.
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
}

fn split(leases: &[(JobId, Token)]) -> (Vec<i64>, Vec<Uuid>) {
    leases.iter().map(|(id, token)| (id.0, token.0)).unzip()
}

/// Returns `None` if no job has an output, so that no array of nulls is sent.
fn any_output(outputs: Vec<Option<Json>>) -> Option<Vec<Option<Json>>> {
    outputs.iter().any(Option::is_some).then_some(outputs)
}

/// Adds the arguments that the two claiming calls share.
fn claiming<'p>(call: Call<'p>, options: &'p ClaimOptions) -> Call<'p> {
    call.option("worker", &options.worker)
        .option("max_jobs", &options.max_jobs)
        .option("tasks", &options.tasks)
        .option("groups", &options.groups)
        .option("versions", &options.versions)
        .option("lease", &options.lease)
        .option("places", &options.places)
        .option("min_jobs", &options.min_jobs)
        .option("max_wait", &options.max_wait)
}
