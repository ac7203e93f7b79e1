//! Waits for many jobs over one connection.
//!
//! A task owns the connection and calls `trax.await_jobs` with all jobs that have a waiting caller.
//! If callers arrive meanwhile, the task sends the next call, which ends the previous one. The
//! server keeps state between calls, so a call reads only jobs that are new or have ended. The
//! pause between calls grows with the number of jobs they name.

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

/// How long one call waits at most, and how long after that its answer may take.
const CALL: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between calls: `PACE` per job of the call, at most `LONGEST_PACE`.
const PACE: Duration = Duration::from_micros(2);
const LONGEST_PACE: Duration = Duration::from_millis(50);
/// The maximum number of jobs in one call. Beyond it, jobs take turns from call to call.
const BATCH: usize = 65_536;
/// How long the connection is kept open without a waiting caller.
const IDLE: Duration = Duration::from_secs(60);

/// Waits for any number of jobs over a single connection, which is reopened when it breaks.
///
/// Clones share the connection, so ten thousand callers in a process need only one. The first call
/// opens it.
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

/// A request of a caller that waits for a job.
#[derive(Debug)]
struct Request {
    job_id: i64,
    answer: oneshot::Sender<Result<Job>>,
}

impl JobWaiter {
    /// Returns a waiter. Must be called inside a Tokio runtime, on which its task runs.
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

    /// Waits until a job has ended, at most for `timeout`, and returns its result, with the output
    /// parsed as `T`, the type that its handler returns. While the server cannot be reached, the
    /// call keeps waiting.
    ///
    /// # Errors
    /// [`Error::UnknownName`] (42704) if the job does not exist, or ended longer ago than
    /// `trax.run_retention`; an error of the server, such as for a job that this role may not see.
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

    /// Waits until a job has ended, and returns it.
    ///
    /// # Errors
    /// The errors of [`await_job`](Self::await_job).
    pub async fn ended(&self, job_id: JobId) -> Result<Job> {
        let gone = || Error::Setup("the runtime of this JobWaiter has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let job_id = job_id.0;
        let request = Request { job_id, answer };
        self.requests.send(request).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The state of the task.
struct Waiting {
    address: Address,
    incoming: mpsc::UnboundedReceiver<Request>,
    callers: HashMap<i64, Vec<oneshot::Sender<Result<Job>>>>,
    /// Jobs not yet part of an accepted call.
    new: HashSet<i64>,
    connection: Option<Connection>,
    /// The position of the next call in the list of jobs, if there are more than one call may name.
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
            // The connection broke, or its protocol state is unknown.
            self.connection = None;
            if error.is_transient() {
                tokio::time::sleep(backoff.after(&error)).await;
            } else {
                self.refuse(&error).await;
            }
        }
    }

    /// Waits for a caller if there is none. Returns false if no caller can come any more.
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

    /// Adds a request. Returns whether the job had no caller before.
    fn add(&mut self, request: Request) -> bool {
        let callers = self.callers.entry(request.job_id).or_default();
        let is_new = callers.is_empty();
        if is_new {
            self.new.insert(request.job_id);
        }
        callers.push(request.answer);
        is_new
    }

    /// Removes callers that no longer wait.
    fn prune(&mut self) {
        self.callers.retain(|_, callers| {
            callers.retain(|caller| !caller.is_closed());
            !callers.is_empty()
        });
        let callers = &self.callers;
        self.new.retain(|job_id| callers.contains_key(job_id));
    }

    /// Calls until jobs have ended, and answers their callers.
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
            // More requests may arrive meanwhile and join the next call.
            tokio::select! {
                ended = &mut answer => break ended?,
                () = sleep_until(sent + pace(&call)) => {}
            }
            while let Ok(request) = self.incoming.try_recv() {
                self.add(request);
            }
            // The next message ends the current call.
            let next = self.call();
            sent = Instant::now();
            let mut next_answer = Box::pin(asked(&connection, next.clone()));
            let ended = tokio::select! {
                biased;
                ended = &mut answer => ended?,
                // Polled so that the message is sent. The answer to the previous call comes first.
                ended = &mut next_answer => break ended?,
            };
            self.accepted(&call);
            call = next;
            answer = next_answer;
            if !ended.is_empty() {
                // The query for these jobs also ends the next call.
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

    /// Answers the callers of these jobs, which have ended or do not exist.
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
                // A caller that no longer waits needs no answer.
                caller.send(answer).ok();
            }
        }
        Ok(())
    }

    /// Answers the callers of the job for which the server refused a call, or all callers if none
    /// of the new jobs is the cause.
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

/// Returns all jobs, or the next `at_most` of them from `turn`, which it advances.
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

/// Returns the pause between a call with these jobs and the next call.
fn pace(call: &[i64]) -> Duration {
    (PACE * u32::try_from(call.len()).unwrap_or(u32::MAX)).min(LONGEST_PACE)
}

/// Sends one call in the simple query protocol, where nothing follows the message, and returns the
/// jobs that have ended.
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

/// Returns the server's error for an unknown job.
fn unknown(job_id: i64) -> Error {
    Error::UnknownName(Report {
        sqlstate: "42704".to_owned(),
        message: format!("job {job_id} does not exist"),
        detail: None,
        hint: Some("Pass the id that enqueue() returned.".to_owned()),
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
