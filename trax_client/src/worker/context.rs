//! What a handler knows about the attempt that it executes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;

use super::cancellation::{Cancellation, Reason};
use super::held::Held;
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
    held: Arc<Held>,
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
    /// Takes the input out of the claim: the handler owns it.
    pub(crate) fn new(
        mut claimed: Claimed,
        cancellation: Cancellation,
        state: Arc<S>,
        held: Arc<Held>,
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

    /// What was claimed, without the input.
    pub(crate) fn claimed(&self) -> Arc<Claimed> {
        Arc::clone(&self.attempt)
    }

    /// The job.
    pub fn job_id(&self) -> JobId {
        self.attempt.job_id
    }

    /// The lease's token, for a handler that calls `complete` in its own transaction.
    pub fn token(&self) -> Token {
        self.attempt.token
    }

    /// 1 for the first attempt.
    pub fn attempt(&self) -> i32 {
        self.attempt.attempt
    }

    /// The name of the task.
    pub fn task(&self) -> &str {
        &self.attempt.task
    }

    /// The manifest that the job came from.
    pub fn manifest(&self) -> Option<&str> {
        self.attempt.manifest.as_deref()
    }

    /// The job's group.
    pub fn group(&self) -> Option<&str> {
        self.attempt.group_name.as_deref()
    }

    /// The time that the manifest meant.
    pub fn scheduled_for(&self) -> Option<SystemTime> {
        self.attempt.scheduled_for
    }

    /// How long the attempt may run.
    pub fn timeout(&self) -> Option<Duration> {
        self.attempt.timeout
    }

    /// When that time is over, by the server's clock.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.attempt.deadline
    }

    /// The span that enqueued the job, the same for every attempt; none when it named none that is
    /// well-formed.
    pub fn trace_context(&self) -> Option<TraceContext> {
        trace::received(self.trace()).0
    }

    /// What was given for tracing at enqueueing, as it is.
    pub fn trace(&self) -> Option<&Value> {
        self.attempt.trace.as_ref()
    }

    /// What the worker's handlers share.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Asks or waits whether to stop; can be cloned into whatever the handler starts.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Says how far the job is, for everybody to see in `trax.job` while it runs: a number, a text
    /// or a small document (8 KiB). Costs nothing here: the worker sends the last word of each job
    /// at most twice a second, over the connection of its heartbeats.
    ///
    /// # Errors
    /// Only when `progress` cannot be written as JSON.
    pub fn progress<T: Serialize>(&self, progress: T) -> Result<()> {
        let progress = serde_json::to_value(progress)?;
        self.held.report(self.job_id(), self.token(), progress);
        Ok(())
    }

    /// Returns when the attempt should stop, and never otherwise.
    pub async fn cancelled(&self) -> Reason {
        self.cancellation.cancelled().await
    }
}
