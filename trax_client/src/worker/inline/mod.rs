//! Executes one job inline, without loop, thread or heartbeat, for tests of handlers.

mod through;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use tokio_postgres::GenericClient;

use super::Worker;
use super::cancellation::{Reason, cancellation};
use super::check::{check, declared_by};
use super::context::Context;
use super::handler::attempt;
use super::held_leases::HeldLeases;
use super::outcome::Verdict;
use super::step_server;
use super::unreported::{Answer, UnreportedOutcome, report};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{ClaimOptions, Claimed};
use crate::job_result::JobState;
use crate::json::Json;
use crate::testkit::{self, Ended, Ran};

impl<S: Send + Sync + 'static> Worker<S> {
    /// Claims one job of `task`, executes it with the middleware of its handler, and reports its
    /// outcome before returning, all over `db`, which may be a transaction.
    ///
    /// The address of the worker is not used, and nothing runs beside the handler: no heartbeat
    /// extends the lease, and neither a timeout nor a cancellation arrives
    /// ([`Worker::run_one_until`] simulates one).
    ///
    /// # Errors
    /// If no job of the task is ready; the text lists the waiting jobs. A failure of the handler is
    /// not an error here but part of [`Ran`].
    pub async fn run_one<C: GenericClient + Sync>(
        &self,
        db: &C,
        task: &str,
    ) -> Result<Ran, testkit::Error> {
        self.run_one_until(db, task, std::future::pending()).await
    }

    /// As [`run_one`](Self::run_one), and asks the handler to stop when `stop` resolves, with the
    /// reason that it returns: after cancelling the job for [`Reason::Cancelled`], and after
    /// releasing it for [`Reason::LeaseLost`].
    pub async fn run_one_until<C: GenericClient + Sync>(
        &self,
        db: &C,
        task: &str,
        stop: impl Future<Output = Reason>,
    ) -> Result<Ran, testkit::Error> {
        check(
            &self.name,
            &self.setup,
            declared_by(&self.schedules, &self.declared),
        )?;
        let handler = self.setup.handlers.get(task).ok_or_else(|| {
            Error::Setup(format!("this worker has no handler for task \"{task}\""))
        })?;
        let client = Client::new(db);
        let mut options = ClaimOptions::new().worker(&self.name).tasks([task]);
        options = options.lease(self.setup.lease);
        options.groups = self.setup.groups.clone();
        options.versions = self.setup.versions.clone();
        let sent = Moment::now();
        let Some(claimed) = client.claim(&options).await?.pop() else {
            return Err(testkit::nothing_ready(db, task).await);
        };

        let held = Arc::new(HeldLeases::default());
        let (trigger, cancellation) = cancellation();
        let key = (claimed.job_id, claimed.token);
        let timeout = claimed.timeout;
        held.insert(key, trigger.clone(), sent, self.setup.lease, timeout);
        let state = Arc::clone(&self.setup.state);
        let (caller, mut calls) = mpsc::unbounded_channel();
        let (input, ctx) = Context::new(claimed, cancellation, state, Arc::clone(&held), caller);
        let claimed = ctx.claimed();
        let mut execution = Box::pin(attempt(handler, input, ctx, self.setup.cancel_patience));
        let mut stop = pin!(stop);
        let mut stopped = false;
        let verdict = loop {
            tokio::select! {
                biased;
                verdict = &mut execution => break verdict,
                Some(call) = calls.recv() => step_server::answer(&client, call).await,
                reason = &mut stop, if !stopped => {
                    stopped = true;
                    match reason {
                        Reason::Cancelled => {
                            client.cancel(key.0).await?;
                        }
                        Reason::LeaseLost => {
                            client.release(key.0, key.1, None).await?;
                        }
                        Reason::Timeout | Reason::Shutdown => {}
                    }
                    trigger.cancel(reason);
                }
            }
        };
        let progress = held.take_reports().pop().map(|(_, _, progress)| progress);
        if let Some(progress) = &progress {
            client.report_progress(key.0, key.1, progress).await?;
        }
        let (output, error) = result(&client, &claimed, &verdict).await?;
        let ended = match verdict {
            Verdict::Suspended => Ended::Suspended,
            verdict => {
                let outcome = UnreportedOutcome::new(key.0, key.1, verdict);
                let answer = report(&client, &self.events, &outcome).await?;
                ended(&client, key.0, answer).await?
            }
        };
        Ok(Ran {
            job_id: key.0,
            attempt: claimed.attempt,
            ended,
            output,
            error,
            progress,
        })
    }
}

/// Returns the output and the error of a verdict. If the handler reported the outcome itself, the
/// output is read from the run.
async fn result<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    claimed: &Claimed,
    verdict: &Verdict,
) -> Result<(Option<Json>, Option<String>), testkit::Error> {
    match verdict {
        Verdict::Complete(done) => Ok((done.output.clone(), None)),
        Verdict::Fail(failure) => Ok((None, Some(failure.error.clone()))),
        Verdict::Release(_)
        | Verdict::AcknowledgeCancel
        | Verdict::TimedOut
        | Verdict::Suspended
        | Verdict::CancelOwn(_) => Ok((None, None)),
        Verdict::Recorded => testkit::recorded(client.db(), claimed)
            .await
            .map(|output| (output, None)),
    }
}

async fn ended<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    job_id: JobId,
    answer: Answer,
) -> Result<Ended, testkit::Error> {
    match answer {
        Answer::Completed => Ok(Ended::Completed),
        Answer::Retrying => Ok(Ended::Retrying),
        Answer::TimedOut => match client.job(job_id).await? {
            Some(job) if job.state == JobState::Failed => Ok(Ended::Dead),
            _ => Ok(Ended::Retrying),
        },
        Answer::Dead => Ok(Ended::Dead),
        Answer::Cancelled => Ok(Ended::Cancelled),
        Answer::Released => Ok(Ended::Released),
        Answer::Lost => Ok(Ended::Lost),
        Answer::Unreported => Err(testkit::Error::new(
            "the server refused both the outcome and the failure reported in its place",
        )),
    }
}
