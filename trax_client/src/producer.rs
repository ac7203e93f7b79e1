//! A producer that a service keeps: it connects when it is needed, and again after a failure.
//!
//! Enters: jobs and questions, from any number of tasks. Leaves: the server's answer, or the error
//! after the patience is over. Holds: one connection, which nobody has to themselves; a call is
//! repeated only if it cannot happen twice.

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
use crate::job::{JobOptions, NewJob, NewJobs};
use crate::queue::{Attempt, QueueDepth};
use crate::sql::Interval;
use crate::worker::connection::{Backoff, Connection, answer_within, hardened, open};

/// How long a call may take, connecting and repeating included.
const PATIENCE: Duration = Duration::from_secs(10);
/// The least time that is left for an answer.
const LEAST: Duration = Duration::from_millis(100);
/// As of a worker: what limits how long a dead connection goes unnoticed.
const LEASE: Duration = Duration::from_secs(30);

/// Enqueues jobs over a connection of its own, for a service that keeps it for as long as it runs.
///
/// It connects with the first call, to the primary of several hosts, with TLS as the address says,
/// and again when the connection broke. A clone is the same producer, and cheap. Calls of many
/// tasks share the connection.
///
/// A call that failed is repeated until the patience (10 s) is over, if it cannot happen twice: one
/// that was never sent, or that the server refused for the moment; questions; jobs whose key lasts
/// that long ([`unique_for`](JobOptions::unique_for)). Other jobs whose connection broke end as
/// [`Error::Connection`]: they may have been queued.
///
/// A job that belongs to other writes is enqueued in their transaction, with a [`Client`] on a
/// connection or pool of the program.
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

/// Makes a call until it has its answer, or must not be made again.
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
    /// Returns a producer that is not connected yet.
    pub fn new(address: impl Into<Address>) -> Self {
        Self::with_patience(address, PATIENCE)
    }

    /// Returns one whose calls take no longer than this.
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

    /// Connects, if it is not connected: to find at its start that a service cannot enqueue.
    ///
    /// # Errors
    /// Of the address or the server; [`Error::Connection`] when the patience is over.
    pub async fn connect(&self) -> Result<()> {
        Tries::of(&self.0).connection().await.map(|_| ())
    }

    /// Queues one job and returns its id, as [`Client::enqueue`].
    pub async fn enqueue<T: Serialize>(&self, job: &NewJob<T>) -> Result<JobId> {
        answered!(
            self,
            is_repeatable(&job.options, self.0.patience),
            |client| client.enqueue(job)
        )
    }

    /// Queues one job for each input, as [`Client::enqueue_many`].
    pub async fn enqueue_many<T: Serialize>(&self, jobs: &NewJobs<'_, T>) -> Result<Vec<JobId>> {
        answered!(
            self,
            is_repeatable(&jobs.options, self.0.patience),
            |client| client.enqueue_many(jobs)
        )
    }

    /// Returns how many jobs are ready, as [`Client::queue_depths`].
    pub async fn queue_depths(&self, count_up_to: i64) -> Result<Vec<QueueDepth>> {
        answered!(self, true, |client| client.queue_depths(count_up_to))
    }

    /// Returns the ended attempts of a job, as [`Client::attempts`].
    pub async fn attempts(&self, job_id: JobId) -> Result<Vec<Attempt>> {
        answered!(self, true, |client| client.attempts(job_id))
    }

    /// Returns the dead letters that wait for a person, as [`Client::dead_letters`].
    pub async fn dead_letters(&self, limit: i64) -> Result<Vec<DeadLetter>> {
        answered!(self, true, |client| client.dead_letters(limit))
    }
}

/// Returns whether a job that is queued again within the patience is the same job, even if it ended
/// meanwhile.
fn is_repeatable(options: &JobOptions, patience: Duration) -> bool {
    let lasts = |time: &Interval| time.0 >= patience;
    options.unique_key.is_some() && options.unique_for.as_ref().is_some_and(lasts)
}

/// The tries of one call.
struct Tries<'p> {
    shared: &'p Shared,
    deadline: Instant,
    backoff: Backoff,
}

impl<'p> Tries<'p> {
    fn of(shared: &'p Shared) -> Self {
        Tries {
            shared,
            deadline: Instant::now() + shared.patience,
            backoff: Backoff::new(shared.patience / 4),
        }
    }

    fn left(&self) -> Duration {
        self.deadline
            .saturating_duration_since(Instant::now())
            .max(LEAST)
    }

    /// Returns the connection, or opens one. Others wait meanwhile: they need the same one.
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

    /// Returns what to do with an answer; an error that may pass is waited out.
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
        // What the server refused did not happen. What broke with the connection may have.
        let may_repeat = repeatable || !broken || error.is_starting();
        match may_repeat && self.waits_after(&error).await {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(Err(error)),
        }
    }

    /// Waits before the next try; false when there is none.
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

    /// Forgets a connection that broke, unless another has taken its place.
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
        assert!(is_repeatable(&key.unique_for(PATIENCE), PATIENCE));
    }
}
