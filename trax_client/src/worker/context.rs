//! What a handler knows about its attempt.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::cancellation::{Cancellation, Reason};
use super::held_leases::HeldLeases;
use crate::address::Address;
use crate::error::Result;
use crate::id::{JobId, Token};
use crate::job::Claimed;
use crate::json::Json;
use crate::trace::{self, TraceContext};

/// One attempt: the job, its lease, and the worker's shared state `S`.
pub struct Context<S = ()> {
    attempt: Arc<Claimed>,
    cancellation: Cancellation,
    state: Arc<S>,
    held: Arc<HeldLeases>,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Context {
            attempt: Arc::clone(&self.attempt),
            cancellation: self.cancellation.clone(),
            state: Arc::clone(&self.state),
            held: Arc::clone(&self.held),
        }
    }
}

impl<S> Context<S> {
    /// Takes the input out of the claim, for the handler to own.
    pub(crate) fn new(
        mut claimed: Claimed,
        cancellation: Cancellation,
        state: Arc<S>,
        held: Arc<HeldLeases>,
    ) -> (Json, Self) {
        let input = std::mem::take(&mut claimed.input);
        (
            input,
            Context {
                attempt: Arc::new(claimed),
                cancellation,
                state,
                held,
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

    /// Returns the lease's token, for a handler that calls `complete` in its own transaction.
    pub fn token(&self) -> Token {
        self.attempt.token
    }

    /// Returns where the job is from, for a worker of several databases; none in a test that runs
    /// it in place.
    pub fn database(&self) -> Option<&Address> {
        self.held.database()
    }

    /// Returns the number of the attempt, 1 for the first.
    pub fn attempt(&self) -> i32 {
        self.attempt.attempt
    }

    /// Returns how many attempts the job has; this one is the last when
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

    /// Returns the manifest that the job comes from.
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

    /// Returns how long the attempt may run.
    pub fn timeout(&self) -> Option<Duration> {
        self.attempt.timeout
    }

    /// Returns when its timeout ends, by the server's clock.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.attempt.deadline
    }

    /// Returns the span that enqueued the job, the same for every attempt; none when there was none
    /// or it is malformed.
    pub fn trace_context(&self) -> Option<TraceContext> {
        trace::received(self.trace()).0
    }

    /// Returns the trace data that was stored when the job was enqueued, unchecked.
    pub fn trace(&self) -> Option<&Json> {
        self.attempt.trace.as_ref()
    }

    /// Returns the state that the worker's handlers share.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns what to check, or wait for, to know when to stop; clone it into whatever the handler
    /// starts.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Reports how far the job is, for everyone to see in `trax.job` while it runs: a number, a
    /// text or a small document (8 KiB). This call is cheap: the worker sends the latest report of
    /// each job at most twice a second, over the connection of its heartbeats.
    ///
    /// # Errors
    /// Only when `progress` cannot be written as JSON.
    pub fn progress<T: Serialize>(&self, progress: T) -> Result<()> {
        let progress = Json::of(&progress)?;
        self.held.report(self.job_id(), self.token(), progress);
        Ok(())
    }

    /// Returns when the attempt should stop, and never otherwise.
    pub async fn cancelled(&self) -> Reason {
        self.cancellation.cancelled().await
    }
}
