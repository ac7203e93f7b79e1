//! A long-lived producer for a service: it connects on demand and reconnects after a failure.
//!
//! Input: jobs and queries from any number of tasks. Output: the server's answer, or the error once
//! the time limit is over. Invariants: all tasks share one connection, and a call is repeated only
//! if it cannot take effect twice.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;

use crate::address::Address;
use crate::client::Client;
use crate::error::{Blame, Error, Result};
use crate::health::DeadLetter;
use crate::id::JobId;
use crate::job::{NewJob, NewJobs};
use crate::job_options::{JobOptions, OnDuplicate};
use crate::queue::{Attempt, QueueDepth};
use crate::sql::Interval;
use crate::worker::connection::{Backoff, Connection, answer_within, hardened, open};
use crate::worker::deadline::LONGEST;

/// The time limit of a call, including connecting and retries.
const PATIENCE: Duration = Duration::from_secs(10);
/// The minimum time left for an answer.
const LEAST: Duration = Duration::from_millis(100);
/// Sizes the keepalive settings as for a worker's lease: limits how long a dead connection goes
/// unnoticed.
const LEASE: Duration = Duration::from_secs(30);

/// Enqueues jobs over a dedicated connection, for a service that keeps the producer as long as it
/// runs.
///
/// The first call connects, to the primary of several hosts, with TLS as the address sets it; a
/// broken connection is reopened. A clone is cheap and is the same producer. Calls of many tasks
/// share the connection.
///
/// A failed call is retried until the time limit (10 s) if it cannot take effect twice: a call that
/// was never sent or that the server refused temporarily, a query, or a job whose unique key lasts
/// at least as long as the limit ([`unique_for`](JobOptions::unique_for)). If the connection breaks
/// during other calls, they return [`Error::Connection`]: their jobs may have been queued.
///
/// To enqueue a job in a transaction together with other writes, use a [`Client`] on a connection
/// or pool of the program.
///
/// ```no_run
/// # async fn example(address: trax_client::Address) -> trax_client::Result<()> {
/// use std::time::Duration;
/// use trax_client::{JobOptions, NewJob, Producer};
///
/// let producer = Producer::new(address); // in the state of the service
/// let hour = Duration::from_secs(3600);
/// let job = NewJob::new("mail.welcome", "ada@example.org")
///     .with(JobOptions::new().unique_key("welcome ada@example.org").unique_for(hour));
/// let job_id = producer.enqueue(&job).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer(Arc<Shared>);

struct Shared {
    address: Address,
    patience: Duration,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// Repeats a call until it has an answer or may not be repeated.
macro_rules! answered {
    ($producer:expr, $repeatable:expr, |$client:ident| $call:expr) => {{
        let mut tries = Tries::of(&$producer.0);
        loop {
            let connection = tries.connection().await?;
            let $client = Client::new(&**connection);
            let answer = answer_within(tries.left(), $call).await;
            if let ControlFlow::Break(answer) = tries.after(answer, &connection, $repeatable).await
            {
                break answer;
            }
        }
    }};
}

impl Producer {
    /// Returns a producer that has not connected yet.
    pub fn new(address: impl Into<Address>) -> Self {
        Self::with_patience(address, PATIENCE)
    }

    /// Returns a producer with this time limit for its calls.
    pub fn with_patience(address: impl Into<Address>, patience: Duration) -> Self {
        let mut address = address.into();
        if address.get_application_name().is_none() {
            address.application_name("trax producer");
        }
        if address.get_connect_timeout().is_none() {
            let limit = (patience / 2).clamp(LEAST, Duration::from_secs(5));
            address.connect_timeout(limit);
        }
        Producer(Arc::new(Shared {
            address: hardened(address, "", LEASE),
            patience,
            connection: Mutex::new(None),
        }))
    }

    /// Connects if necessary, so that a service finds at startup whether it can enqueue.
    ///
    /// # Errors
    /// The errors of the address or the server; [`Error::Connection`] once the time limit is over.
    pub async fn connect(&self) -> Result<()> {
        Tries::of(&self.0).connection().await.map(|_| ())
    }

    /// Queues one job and returns its id, as [`Client::enqueue`] does.
    pub async fn enqueue<T: Serialize>(&self, job: &NewJob<T>) -> Result<JobId> {
        answered!(
            self,
            is_repeatable(&job.options, self.0.patience),
            |client| client.enqueue(job)
        )
    }

    /// Queues one job for each input, as [`Client::enqueue_many`] does.
    pub async fn enqueue_many<T: Serialize>(&self, jobs: &NewJobs<'_, T>) -> Result<Vec<JobId>> {
        answered!(
            self,
            is_repeatable(&jobs.options, self.0.patience),
            |client| client.enqueue_many(jobs)
        )
    }

    /// Returns the number of ready jobs, as [`Client::queue_depths`] does.
    pub async fn queue_depths(&self, count_up_to: i64) -> Result<Vec<QueueDepth>> {
        answered!(self, true, |client| client.queue_depths(count_up_to))
    }

    /// Returns the ended attempts of a job, as [`Client::attempts`] does.
    pub async fn attempts(&self, job_id: JobId) -> Result<Vec<Attempt>> {
        answered!(self, true, |client| client.attempts(job_id))
    }

    /// Returns the dead letters that await intervention, as [`Client::dead_letters`] does.
    pub async fn dead_letters(&self, limit: i64) -> Result<Vec<DeadLetter>> {
        answered!(self, true, |client| client.dead_letters(limit))
    }
}

/// Returns whether queueing the job again within the time limit yields the same job, even if it has
/// ended meanwhile. A repeated call that replaces the waiting job could undo a later one.
fn is_repeatable(options: &JobOptions, patience: Duration) -> bool {
    let lasts = |time: &Interval| time.0 >= patience;
    options.unique_key.is_some()
        && options.unique_for.as_ref().is_some_and(lasts)
        && options.on_duplicate.unwrap_or_default() == OnDuplicate::Keep
}

/// The attempts of one call.
struct Tries<'p> {
    shared: &'p Shared,
    deadline: Instant,
    backoff: Backoff,
}

impl<'p> Tries<'p> {
    fn of(shared: &'p Shared) -> Self {
        Tries {
            shared,
            deadline: Instant::now() + shared.patience.min(LONGEST),
            backoff: Backoff::new(shared.patience / 4),
        }
    }

    fn left(&self) -> Duration {
        self.deadline
            .saturating_duration_since(Instant::now())
            .max(LEAST)
    }

    /// Returns the connection, opening it if necessary. Other callers wait meanwhile, as they need
    /// the same connection.
    async fn connection(&mut self) -> Result<Arc<Connection>> {
        loop {
            let left = self.left();
            let connecting = answer_within(left, self.shared.connected());
            match connecting.await {
                Err(error) if self.waits_after(&error).await => {}
                connected => return connected,
            }
        }
    }

    /// Decides what to do after an answer. Waits after an error that may be temporary.
    async fn after<T>(
        &mut self,
        answer: Result<T>,
        connection: &Arc<Connection>,
        repeatable: bool,
    ) -> ControlFlow<Result<T>> {
        let Err(error) = answer else {
            return ControlFlow::Break(answer);
        };
        let broken = error.blame() == Blame::Connection;
        if broken {
            self.shared.forget(connection).await;
        }
        // A call that the server refused had no effect. A call that broke with the connection may
        // have had one.
        let may_repeat = repeatable || !broken || error.is_starting();
        match may_repeat && self.waits_after(&error).await {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(Err(error)),
        }
    }

    /// Waits before the next attempt. Returns false if there is none.
    async fn waits_after(&mut self, error: &Error) -> bool {
        let delay = self.backoff.after(error);
        let in_time = Instant::now() + delay < self.deadline;
        if error.is_transient() && in_time {
            tokio::time::sleep(delay).await;
        }
        error.is_transient() && in_time
    }
}

impl Shared {
    async fn connected(&self) -> Result<Arc<Connection>> {
        let mut connection = self.connection.lock().await;
        match &*connection {
            Some(open) if !open.is_closed() => Ok(Arc::clone(open)),
            _ => {
                let opened = Arc::new(open(&self.address).await?);
                *connection = Some(Arc::clone(&opened));
                Ok(opened)
            }
        }
    }

    /// Drops a broken connection, unless another has already replaced it.
    async fn forget(&self, broken: &Arc<Connection>) {
        let mut connection = self.connection.lock().await;
        connection.take_if(|open| Arc::ptr_eq(open, broken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_repeated_only_if_its_key_lasts_as_long_as_the_patience() {
        let key = JobOptions::new().unique_key("a");
        assert!(!is_repeatable(&key, PATIENCE));
        assert!(!is_repeatable(
            &key.clone().unique_for(PATIENCE / 2),
            PATIENCE
        ));
        let key = key.unique_for(PATIENCE);
        assert!(is_repeatable(&key, PATIENCE));
        let replacing = key.on_duplicate(OnDuplicate::Replace);
        assert!(!is_repeatable(&replacing, PATIENCE));
    }
}
