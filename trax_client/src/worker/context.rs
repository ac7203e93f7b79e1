//! The context of an attempt, as a handler sees it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::cancellation::{Cancellation, Reason};
use super::held_leases::HeldLeases;
use super::steps::{Caller, Steps};
use crate::address::Address;
use crate::error::Result;
use crate::id::{JobId, Token};
use crate::job::Claimed;
use crate::json::Json;
use crate::trace::{self, TraceContext};

/// An attempt: the job, its lease, and the worker's shared state `S`.
pub struct Context<S = ()> {
    attempt: Arc<Claimed>,
    cancellation: Cancellation,
    state: Arc<S>,
    pub(super) held: Arc<HeldLeases>,
    pub(super) steps: Arc<Steps>,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Context {
            attempt: Arc::clone(&self.attempt),
            cancellation: self.cancellation.clone(),
            state: Arc::clone(&self.state),
            held: Arc::clone(&self.held),
            steps: Arc::clone(&self.steps),
        }
    }
}

impl<S> Context<S> {
    /// Takes the input out of the claim, so that the handler owns it.
    pub(crate) fn new(
        mut claimed: Claimed,
        cancellation: Cancellation,
        state: Arc<S>,
        held: Arc<HeldLeases>,
        caller: Caller,
    ) -> (Json, Self) {
        let input = std::mem::take(&mut claimed.input);
        let steps = Arc::new(Steps::new(&claimed, caller));
        (
            input,
            Context {
                attempt: Arc::new(claimed),
                cancellation,
                state,
                held,
                steps,
            },
        )
    }

    /// Returns the claimed job, without the input.
    pub(crate) fn claimed(&self) -> Arc<Claimed> {
        Arc::clone(&self.attempt)
    }

    /// Returns the job's id.
    pub fn job_id(&self) -> JobId {
        self.attempt.job_id
    }

    /// Returns the lease's fencing token, for a handler that calls `complete` in its own
    /// transaction.
    pub fn token(&self) -> Token {
        self.attempt.token
    }

    /// Returns the address of the database that the job came from, for a worker of several
    /// databases. `None` in a test that runs the job inline.
    pub fn database(&self) -> Option<&Address> {
        self.held.database()
    }

    /// Returns the number of the attempt; 1 is the first.
    pub fn attempt(&self) -> i32 {
        self.attempt.attempt
    }

    /// Returns the maximum number of attempts. This attempt is the last if
    /// [`attempt`](Self::attempt) equals it.
    pub fn max_attempts(&self) -> i32 {
        self.attempt.max_attempts
    }

    /// Returns when the job was first queued, by the server's clock.
    pub fn queued_at(&self) -> SystemTime {
        self.attempt.queued_at
    }

    /// Returns the name of the task.
    pub fn task(&self) -> &str {
        &self.attempt.task
    }

    /// Returns the manifest that the job came from.
    pub fn manifest(&self) -> Option<&str> {
        self.attempt.manifest.as_deref()
    }

    /// Returns the job's group.
    pub fn group(&self) -> Option<&str> {
        self.attempt.group_name.as_deref()
    }

    /// Returns the time for which the manifest scheduled the job.
    pub fn scheduled_for(&self) -> Option<SystemTime> {
        self.attempt.scheduled_for
    }

    /// Returns the time limit of the attempt.
    pub fn timeout(&self) -> Option<Duration> {
        self.attempt.timeout
    }

    /// Returns when the time limit ends, by the server's clock.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.attempt.deadline
    }

    /// Returns the span that enqueued the job, the same for every attempt. `None` if there is no
    /// span or it is malformed.
    pub fn trace_context(&self) -> Option<TraceContext> {
        trace::received(self.trace()).0
    }

    /// Returns the trace data stored when the job was enqueued, without validation.
    pub fn trace(&self) -> Option<&Json> {
        self.attempt.trace.as_ref()
    }

    /// Returns the state shared by the worker's handlers.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the cancellation, to check or wait for. Clone it for tasks that the handler starts.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Reports the job's progress, which `trax.job` shows while it runs: a number, a text or a
    /// small document (at most 8 KiB). The call is cheap: the worker sends the latest report of
    /// each job at most twice a second, over the connection of its heartbeats.
    ///
    /// # Errors
    /// Only if `progress` cannot be represented as JSON.
    pub fn progress<T: Serialize>(&self, progress: T) -> Result<()> {
        let progress = Json::of(&progress)?;
        self.held.report(self.job_id(), self.token(), progress);
        Ok(())
    }

    /// Completes when the attempt should stop, and otherwise never.
    pub async fn cancelled(&self) -> Reason {
        self.cancellation.cancelled().await
    }
}
