//! Waiting for many jobs over one connection.
//!
//! A task owns the connection. It calls `trax.await_jobs` with all jobs that somebody waits for;
//! when more come meanwhile it sends the next call, which ends the one before. The server remembers
//! from call to call, so that a call reads what is new or has ended. Calls are paced by how many
//! jobs they name.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::SimpleQueryMessage;

use crate::address::Address;
use crate::client::Client;
use crate::error::{Error, Report, Result};
use crate::id::JobId;
use crate::job_result::{Job, JobResult};
use crate::worker::connection::{Backoff, Connection, answer_within, hardened, open};

/// How long one call waits at most, and how much later its answer may come.
const CALL: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// From one call to the next there is so much time for each job of it, and at most this.
const PACE: Duration = Duration::from_micros(2);
const LONGEST_PACE: Duration = Duration::from_millis(50);
/// Most jobs of one call; more take turns, from call to call.
const BATCH: usize = 65_536;
/// How long the connection is kept while nobody waits.
const IDLE: Duration = Duration::from_secs(60);

/// Waits for any number of jobs over one connection of its own, which reconnects by itself.
///
/// Clones share the connection: ten thousand callers of one process need one. It opens with the
/// first call.
///
/// ```no_run
/// # async fn example(
/// #     db: &tokio_postgres::Client,
/// #     address: trax_client::Address,
/// # ) -> trax_client::Result<()> {
/// use std::time::Duration;
/// use trax_client::{Client, JobResult, JobWaiter, NewJob};
///
/// let waiter = JobWaiter::new(address); // once, for the whole program
/// let job = Client::new(db).enqueue(&NewJob::new("sum", [1, 2])).await?;
/// match waiter.await_job::<i64>(job, Duration::from_secs(30)).await? {
///     JobResult::Completed(sum) => println!("{sum}"),
///     JobResult::Failed(error) => println!("failed: {error}"),
///     JobResult::Cancelled(_) => println!("cancelled"),
///     JobResult::NotEnded => println!("still at it"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct JobWaiter {
    requests: mpsc::UnboundedSender<Request>,
}

/// A caller who waits for a job.
#[derive(Debug)]
struct Request {
    job_id: i64,
    answer: oneshot::Sender<Result<Job>>,
}

impl JobWaiter {
    /// Returns a waiter; must be called inside a Tokio runtime, on which it works.
    pub fn new(address: impl Into<Address>) -> Self {
        let mut address = address.into();
        if address.get_application_name().is_none() {
            address.application_name("trax job waiter");
        }
        let (requests, incoming) = mpsc::unbounded_channel();
        let waiting = Waiting {
            address: hardened(address, "", Duration::from_secs(30)),
            incoming,
            callers: HashMap::new(),
            new: HashSet::new(),
            connection: None,
            turn: 0,
        };
        tokio::spawn(waiting.run());
        JobWaiter { requests }
    }

    /// Waits until a job has ended, at most for `timeout`, and returns what became of it, with the
    /// output as the type that its handler returns. It waits for a server that cannot be reached,
    /// too.
    ///
    /// # Errors
    /// [`Error::UnknownManifest`] (42704) when there is no such job, or it ended longer ago than
    /// `trax.run_retention`; what the server refuses, such as a job that this role may not see.
    pub async fn await_job<T: DeserializeOwned>(
        &self,
        job_id: JobId,
        timeout: Duration,
    ) -> Result<JobResult<T>> {
        match tokio::time::timeout(timeout, self.ended(job_id)).await {
            Ok(job) => job?.result(),
            Err(_) => Ok(JobResult::NotEnded),
        }
    }

    /// Returns a job when it has ended.
    ///
    /// # Errors
    /// As [`await_job`](Self::await_job).
    pub async fn ended(&self, job_id: JobId) -> Result<Job> {
        let gone = || Error::Setup("the runtime of this JobWaiter has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let job_id = job_id.0;
        let request = Request { job_id, answer };
        self.requests.send(request).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// What the task knows.
struct Waiting {
    address: Address,
    incoming: mpsc::UnboundedReceiver<Request>,
    callers: HashMap<i64, Vec<oneshot::Sender<Result<Job>>>>,
    /// Jobs that no call has been accepted with.
    new: HashSet<i64>,
    connection: Option<Connection>,
    /// How many jobs the calls have named while there were more than one may name.
    turn: usize,
}

impl Waiting {
    async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::MAX);
        loop {
            self.prune();
            if self.callers.is_empty() && !self.next_caller().await {
                return;
            }
            let error = match self.wait().await {
                Ok(()) => {
                    backoff.reset();
                    continue;
                }
                Err(error) => error,
            };
            // A connection that broke, or is out of step.
            self.connection = None;
            if error.is_transient() {
                tokio::time::sleep(backoff.after(&error)).await;
            } else {
                self.refuse(&error).await;
            }
        }
    }

    /// Waits for a caller while there is none; false when none can come.
    async fn next_caller(&mut self) -> bool {
        let first = match timeout(IDLE, self.incoming.recv()).await {
            Ok(first) => first,
            Err(_) => {
                self.connection = None;
                self.incoming.recv().await
            }
        };
        match first {
            Some(request) => {
                self.add(request);
                true
            }
            None => false,
        }
    }

    /// Returns whether nobody waits for the job yet.
    fn add(&mut self, request: Request) -> bool {
        let callers = self.callers.entry(request.job_id).or_default();
        let is_new = callers.is_empty();
        if is_new {
            self.new.insert(request.job_id);
        }
        callers.push(request.answer);
        is_new
    }

    /// Forgets callers that no longer wait.
    fn prune(&mut self) {
        self.callers.retain(|_, callers| {
            callers.retain(|caller| !caller.is_closed());
            !callers.is_empty()
        });
        let callers = &self.callers;
        self.new.retain(|job_id| callers.contains_key(job_id));
    }

    /// Calls until jobs have ended, and answers for these.
    async fn wait(&mut self) -> Result<()> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(&self.address).await?,
        };
        while let Ok(request) = self.incoming.try_recv() {
            self.add(request);
        }
        let mut sent = Instant::now();
        let mut call = self.call();
        let mut answer = Box::pin(asked(&connection, call.clone()));
        let ended = loop {
            let request = tokio::select! {
                biased;
                ended = &mut answer => break ended?,
                Some(request) = self.incoming.recv() => request,
            };
            if !self.add(request) {
                continue;
            }
            // Others come with it.
            tokio::select! {
                ended = &mut answer => break ended?,
                () = sleep_until(sent + pace(&call)) => {}
            }
            while let Ok(request) = self.incoming.try_recv() {
                self.add(request);
            }
            // The next message ends the call.
            let next = self.call();
            sent = Instant::now();
            let mut next_answer = Box::pin(asked(&connection, next.clone()));
            let ended = tokio::select! {
                biased;
                ended = &mut answer => ended?,
                // Polled, so that it is sent; the answer to the one before comes first.
                ended = &mut next_answer => break ended?,
            };
            self.accepted(&call);
            call = next;
            answer = next_answer;
            if !ended.is_empty() {
                // To ask for these ends the next call too.
                let (more, answered) = tokio::join!(&mut answer, self.answer(&connection, &ended));
                answered?;
                break more?;
            }
        };
        self.accepted(&call);
        if !ended.is_empty() {
            self.answer(&connection, &ended).await?;
        }
        sleep_until(sent + pace(&call)).await;
        drop(answer);
        self.connection = Some(connection);
        Ok(())
    }

    /// Returns the jobs of the next call.
    fn call(&mut self) -> Vec<i64> {
        in_turn(self.callers.keys().copied(), BATCH, &mut self.turn)
    }

    fn accepted(&mut self, call: &[i64]) {
        if !self.new.is_empty() {
            call.iter().for_each(|job_id| {
                self.new.remove(job_id);
            });
        }
    }

    /// Answers those who wait for these jobs, which have ended or do not exist.
    async fn answer(&mut self, connection: &Connection, ended: &[i64]) -> Result<()> {
        let job_ids: Vec<JobId> = ended.iter().copied().map(JobId).collect();
        let client = Client::new(&**connection);
        let jobs = answer_within(CALL, client.jobs(&job_ids)).await?;
        let mut jobs: HashMap<i64, Job> = jobs.into_iter().map(|job| (job.job_id.0, job)).collect();
        for job_id in ended {
            let job = jobs.remove(job_id);
            if job.as_ref().is_some_and(|job| !job.state.has_ended()) {
                continue;
            }
            for caller in self.callers.remove(job_id).unwrap_or_default() {
                let answer = job.clone().ok_or_else(|| unknown(*job_id));
                // Who no longer waits needs no answer.
                caller.send(answer).ok();
            }
        }
        Ok(())
    }

    /// Answers whoever waits for the job that the server refused a call for; all, if it is none of
    /// the new ones.
    async fn refuse(&mut self, error: &Error) {
        let mut refused = Vec::new();
        if let Ok(connection) = open(&self.address).await {
            for job_id in &self.new {
                let client = Client::new(&*connection);
                match answer_within(CALL, client.jobs(&[JobId(*job_id)])).await {
                    Err(error) if !error.is_transient() => refused.push((*job_id, error)),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        if refused.is_empty() {
            for (_, callers) in self.callers.drain() {
                for caller in callers {
                    caller.send(Err(error.again())).ok();
                }
            }
        }
        for (job_id, error) in refused {
            for caller in self.callers.remove(&job_id).unwrap_or_default() {
                caller.send(Err(error.again())).ok();
            }
        }
    }
}

/// Returns all jobs, or the next `at_most` of them by `turn`, which it advances.
fn in_turn(
    jobs: impl ExactSizeIterator<Item = i64> + Clone,
    at_most: usize,
    turn: &mut usize,
) -> Vec<i64> {
    if jobs.len() <= at_most {
        return jobs.collect();
    }
    let begin = *turn % jobs.len();
    *turn = begin + at_most;
    jobs.cycle().skip(begin).take(at_most).collect()
}

/// Returns how long after a call with these jobs the next may be sent.
fn pace(call: &[i64]) -> Duration {
    (PACE * u32::try_from(call.len()).unwrap_or(u32::MAX)).min(LONGEST_PACE)
}

/// Sends one call, by the protocol in which nothing follows a message, and returns the jobs that
/// have ended.
async fn asked(connection: &Connection, job_ids: Vec<i64>) -> Result<Vec<i64>> {
    let names: Vec<String> = job_ids.iter().map(i64::to_string).collect();
    let sql = format!(
        "call trax.await_jobs('{{{}}}', '{} s', null, true)",
        names.join(","),
        CALL.as_secs()
    );
    let call = async { Ok(connection.simple_query(&sql).await?) };
    let messages = answer_within(CALL + ANSWER_PATIENCE, call).await?;
    let mut ended = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let text = row.try_get(0)?.unwrap_or_default();
            let numbers = text.trim_matches(['{', '}']).split(',');
            ended.extend(numbers.filter_map(|number| number.parse::<i64>().ok()));
        }
    }
    Ok(ended)
}

/// Returns the error of the server for a job that it does not know.
fn unknown(job_id: i64) -> Error {
    Error::UnknownManifest(Report {
        sqlstate: "42704".to_owned(),
        message: format!("job {job_id} does not exist"),
        detail: None,
        hint: None,
    })
}

#[cfg(test)]
mod tests {
    use super::in_turn;
    use std::collections::BTreeSet;

    #[test]
    fn more_jobs_than_a_call_may_name_take_turns() {
        let jobs: Vec<i64> = (0..10).collect();
        let mut turn = 0;
        let mut next = || in_turn(jobs.iter().copied(), 4, &mut turn);
        assert_eq!(next(), [0, 1, 2, 3]);
        assert_eq!(next(), [4, 5, 6, 7]);
        assert_eq!(next(), [8, 9, 0, 1]);
        let named: BTreeSet<i64> = (0..3).flat_map(|_| next()).collect();
        assert_eq!(named.len(), 10);
        assert_eq!(
            in_turn(jobs[..4].iter().copied(), 4, &mut turn),
            [0, 1, 2, 3]
        );
    }
}
