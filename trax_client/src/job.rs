//! Jobs as enqueued and claimed.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::error::Result;
use crate::id::{JobId, Token};
use crate::json::Json;
use crate::sql::{Call, Interval};
use crate::task::Task;
use crate::trace::TraceContext;

/// The options of a job. Options that are not set take the server's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOptions {
    pub(crate) run_at: Option<SystemTime>,
    pub(crate) group_name: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) max_retries: Option<i32>,
    pub(crate) timeout: Option<Interval>,
    pub(crate) unique_key: Option<String>,
    pub(crate) concurrency_key: Option<String>,
    pub(crate) trace: Option<Json>,
    pub(crate) retry_delay: Option<Interval>,
    pub(crate) unique_for: Option<Interval>,
}

impl JobOptions {
    /// Returns options with nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time before which the job cannot be claimed.
    pub fn run_at(mut self, at: SystemTime) -> Self {
        self.run_at = Some(at);
        self
    }

    /// Sets the group, whose priority, switch and limit apply to the job.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group_name = Some(name.into());
        self
    }

    /// Sets the priority, 0 (the default) to 31. A higher priority is claimed first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the attempts that may follow the first; default `trax.default_max_retries`.
    pub fn max_retries(mut self, retries: i32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Sets the delay before the second attempt, which grows from there; default
    /// `trax.retry_delay`.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(Interval(delay));
        self
    }

    /// Sets the time limit of one attempt; default `trax.default_timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Interval(timeout));
        self
    }

    /// Sets a unique key. While a job with this key waits or executes, enqueueing returns its id
    /// and queues nothing.
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// Sets the minimum time that the unique key stays alive, counted from enqueueing, even if the
    /// job ends earlier. Use it to run a job at most once an hour, or to repeat a call safely after
    /// a lost connection.
    pub fn unique_for(mut self, time: Duration) -> Self {
        self.unique_for = Some(Interval(time));
        self
    }

    /// Sets a concurrency key: jobs with the same key run one at a time.
    pub fn concurrency_key(mut self, key: impl Into<String>) -> Self {
        self.concurrency_key = Some(key.into());
        self
    }

    /// Sets trace data that is passed to every attempt of the job. For a W3C trace context use
    /// [`JobOptions::trace_context`].
    pub fn trace(mut self, trace: impl Into<Json>) -> Self {
        self.trace = Some(trace.into());
        self
    }

    /// Sets the span that enqueues the job; by default the current one (feature `opentelemetry`).
    pub fn trace_context(self, context: &TraceContext) -> Self {
        self.trace(context.to_json())
    }

    /// Returns these options, replaced by those that `over` sets.
    pub(crate) fn merged(self, over: JobOptions) -> Self {
        JobOptions {
            run_at: over.run_at.or(self.run_at),
            group_name: over.group_name.or(self.group_name),
            priority: over.priority.or(self.priority),
            max_retries: over.max_retries.or(self.max_retries),
            timeout: over.timeout.or(self.timeout),
            unique_key: over.unique_key.or(self.unique_key),
            concurrency_key: over.concurrency_key.or(self.concurrency_key),
            trace: over.trace.or(self.trace),
            retry_delay: over.retry_delay.or(self.retry_delay),
            unique_for: over.unique_for.or(self.unique_for),
        }
    }

    /// Adds the options to a call. `trace` replaces the trace of the options.
    pub(crate) fn apply<'p>(&'p self, call: Call<'p>, trace: &'p Option<Json>) -> Call<'p> {
        call.option("run_at", &self.run_at)
            .option("group_name", &self.group_name)
            .option("priority", &self.priority)
            .option("max_retries", &self.max_retries)
            .option("timeout", &self.timeout)
            .option("unique_key", &self.unique_key)
            .option("concurrency_key", &self.concurrency_key)
            .option("trace", trace)
            .option("retry_delay", &self.retry_delay)
            .option("unique_for", &self.unique_for)
    }
}

/// A job to enqueue: its task, its input and its options.
///
/// ```
/// use trax_client::{JobOptions, NewJob};
///
/// #[derive(serde::Serialize)]
/// struct Mail { to: String }
///
/// let job = NewJob::new("mail.send", Mail { to: "a@example.org".into() })
///     .with(JobOptions::new().group("mail").priority(5));
/// # assert_eq!(job.task, "mail.send");
/// ```
#[derive(Clone, Debug)]
pub struct NewJob<T> {
    /// The name of the task, which selects the handler.
    pub task: String,
    /// The input of the job.
    pub input: T,
    /// The options of the job.
    pub options: JobOptions,
}

impl<T: Serialize> NewJob<T> {
    /// Returns a job with the server's default options.
    pub fn new(task: impl Into<String>, input: T) -> Self {
        NewJob {
            task: task.into(),
            input,
            options: JobOptions::default(),
        }
    }

    /// Returns a job of the task that the input's type belongs to, with the task's options.
    pub fn of(input: T) -> Self
    where
        T: Task,
    {
        NewJob::new(T::NAME, input).with(T::options())
    }

    /// Sets options of the job. Options not set in `options` keep their values.
    pub fn with(mut self, options: JobOptions) -> Self {
        self.options = self.options.merged(options);
        self
    }
}

/// Converts the input of a task to a job with the task's options.
impl<T: Task + Serialize> From<T> for NewJob<T> {
    fn from(input: T) -> Self {
        NewJob::of(input)
    }
}

/// Jobs of one task to enqueue, all with the same options.
///
/// ```
/// use trax_client::{JobOptions, NewJobs, Task};
///
/// #[derive(serde::Serialize)]
/// struct Mail { to: String }
///
/// impl Task for Mail {
///     const NAME: &str = "mail.send";
/// }
///
/// let mails = ["ada", "bob"].map(|to| Mail { to: to.to_owned() });
/// let jobs = NewJobs::of(&mails).with(JobOptions::new().priority(5));
/// # assert_eq!(jobs.task, "mail.send");
/// ```
#[derive(Clone, Debug)]
pub struct NewJobs<'a, T> {
    /// The name of the task, which selects the handler.
    pub task: String,
    /// The input of each job.
    pub inputs: &'a [T],
    /// The options of all the jobs.
    pub options: JobOptions,
}

impl<'a, T: Serialize> NewJobs<'a, T> {
    /// Returns a job for each input, with the server's default options.
    pub fn new(task: impl Into<String>, inputs: &'a [T]) -> Self {
        NewJobs {
            task: task.into(),
            inputs,
            options: JobOptions::default(),
        }
    }

    /// Returns a job for each input, of the task that the inputs' type belongs to, with the task's
    /// options.
    pub fn of(inputs: &'a [T]) -> Self
    where
        T: Task,
    {
        NewJobs::new(T::NAME, inputs).with(T::options())
    }

    /// Sets options of the jobs. Options not set in `options` keep their values.
    pub fn with(mut self, options: JobOptions) -> Self {
        self.options = self.options.merged(options);
        self
    }
}

/// The parameters of a claim. The default claims one job of any task.
#[derive(Clone, Debug, Default)]
pub struct ClaimOptions {
    pub(crate) worker: Option<String>,
    pub(crate) max_jobs: Option<i32>,
    pub(crate) tasks: Option<Vec<String>>,
    pub(crate) groups: Option<Vec<String>>,
    pub(crate) lease: Option<Interval>,
    pub(crate) places: Option<i32>,
}

impl ClaimOptions {
    /// Returns options that claim one job of any task and group, with the server's default lease.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the worker's name, as shown in the lease and the run.
    pub fn worker(mut self, name: impl Into<String>) -> Self {
        self.worker = Some(name.into());
        self
    }

    /// Sets the maximum number of jobs to claim, 1 to 1000.
    pub fn max_jobs(mut self, jobs: i32) -> Self {
        self.max_jobs = Some(jobs);
        self
    }

    /// Limits the claim to jobs of these tasks.
    pub fn tasks<S: Into<String>>(mut self, tasks: impl IntoIterator<Item = S>) -> Self {
        self.tasks = Some(tasks.into_iter().map(Into::into).collect());
        self
    }

    /// Limits the claim to jobs of these groups.
    pub fn groups<S: Into<String>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.groups = Some(groups.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the duration of the lease without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(Interval(lease));
        self
    }

    /// Sets how many of the claimed jobs, from the first, begin at once. The others are fetched
    /// ahead: one that is lost before the next heartbeat uses up no attempt.
    pub fn places(mut self, places: i32) -> Self {
        self.places = Some(places);
        self
    }
}

macro_rules! places {
    ($(#[$doc:meta])* $name:ident { $($column:ident),* $(,)? }) => {
        $(#[$doc])*
        pub(crate) struct $name { $($column: usize),* }

        impl $name {
            pub(crate) fn of(rows: &[Row]) -> Self {
                let columns = rows.first().map_or(&[][..], Row::columns);
                let place = |name| columns.iter().position(|column| column.name() == name);
                // No row has a column at this index, so reading a missing column returns an error.
                $name { $($column: place(stringify!($column)).unwrap_or(usize::MAX)),* }
            }
        }
    };
}

places!(
    /// The positions of a claim's columns by name, looked up once per result instead of once per
    /// row.
    ClaimedPlaces {
        job_id, attempt, max_attempts, queued_at, token, task, input, manifest, group_name,
        scheduled_for, lease_expires_at, timeout, deadline, trace,
    }
);

/// A job under lease: an attempt that this process may execute.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The job.
    pub job_id: JobId,
    /// The number of the attempt; 1 is the first.
    pub attempt: i32,
    /// The maximum number of attempts. This attempt is the last if [`attempt`](Self::attempt)
    /// equals it.
    pub max_attempts: i32,
    /// When the job was first queued, by the server's clock.
    pub queued_at: SystemTime,
    /// The fencing token that every outcome of this attempt must carry.
    pub token: Token,
    /// The name of the task, which selects the handler.
    pub task: String,
    /// The input of the job.
    pub input: Json,
    /// The manifest that the job came from.
    pub manifest: Option<String>,
    /// The group of the job.
    pub group_name: Option<String>,
    /// The time for which the manifest scheduled it.
    pub scheduled_for: Option<SystemTime>,
    /// When the lease expires, by the server's clock.
    pub lease_expires_at: SystemTime,
    /// The time limit of this attempt.
    pub timeout: Option<Duration>,
    /// When the time limit ends, by the server's clock.
    pub deadline: Option<SystemTime>,
    /// The trace data set at enqueueing.
    pub trace: Option<Json>,
}

impl Claimed {
    pub(crate) const COLUMNS: &'static str = "job_id, attempt, token, task, input, manifest, \
         group_name, scheduled_for, lease_expires_at, timeout, trace, \
         max_attempts, queued_at, pg_catalog.clock_timestamp() + timeout as deadline";

    pub(crate) fn from_row(row: &Row, at: &ClaimedPlaces) -> Result<Self> {
        Ok(Claimed {
            job_id: JobId(row.try_get(at.job_id)?),
            attempt: row.try_get(at.attempt)?,
            max_attempts: row.try_get(at.max_attempts)?,
            queued_at: row.try_get(at.queued_at)?,
            token: Token(row.try_get(at.token)?),
            task: row.try_get(at.task)?,
            input: row.try_get(at.input)?,
            manifest: row.try_get(at.manifest)?,
            group_name: row.try_get(at.group_name)?,
            scheduled_for: row.try_get(at.scheduled_for)?,
            lease_expires_at: row.try_get(at.lease_expires_at)?,
            timeout: row.try_get::<_, Option<Interval>>(at.timeout)?.map(|i| i.0),
            deadline: row.try_get(at.deadline)?,
            trace: row.try_get(at.trace)?,
        })
    }

    /// Parses the input as the handler's type.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(self.input.read()?)
    }
}

/// The result of a heartbeat for one lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Beat {
    /// The job.
    pub job_id: JobId,
    /// Whether the lease is still held.
    pub held: bool,
    /// Whether the attempt should stop: its job was cancelled, or its time limit is over.
    pub cancel_requested: bool,
    /// The new expiry of the lease, by the server's clock.
    pub lease_expires_at: Option<SystemTime>,
}

/// The state of a job after a failed attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failed {
    /// The job waits for its next attempt.
    Retrying,
    /// The job has ended. A dead letter exists unless the job was cancelled.
    Dead,
    /// The lease was lost. Nothing has changed.
    Lost,
}

/// The result of a request to cancel a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cancelled {
    /// The job was waiting and is now cancelled.
    Cancelled,
    /// The job is executing. Its worker was asked to stop it.
    Requested,
    /// The job had already ended.
    Finished,
    /// The job does not exist.
    Unknown,
}

/// The state of a job after a request to run it now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunNow {
    /// The job can be claimed.
    Ready,
    /// The job waits for another one with the same concurrency key or of the same manifest.
    Blocked,
    /// The job is executing.
    InProgress,
    /// The job has ended.
    Finished,
    /// The job does not exist.
    Unknown,
}

/// The failure of an attempt, for `Client::fail`.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    pub(crate) error: String,
    pub(crate) detail: Option<Json>,
    pub(crate) retry_in: Option<Interval>,
    pub(crate) permanent: Option<bool>,
}

impl Failure {
    /// Returns a failure that is retried after the job's own delay if attempts remain.
    pub fn new(error: impl Into<String>) -> Self {
        Failure {
            error: error.into(),
            ..Failure::default()
        }
    }

    /// Sets structured detail, which is stored with the run.
    pub fn detail(mut self, detail: impl Into<Json>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets the delay before the next attempt, instead of the job's own.
    pub fn retry_in(mut self, delay: Duration) -> Self {
        self.retry_in = Some(Interval(delay));
        self
    }

    /// Prevents further attempts even if some remain.
    pub fn permanent(mut self) -> Self {
        self.permanent = Some(true);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Mail;

    impl Task for Mail {
        const NAME: &str = "mail.send";

        fn options() -> JobOptions {
            JobOptions::new().group("mail").max_retries(5)
        }
    }

    #[test]
    fn options_of_a_job_are_added_to_those_of_its_task() {
        let more = || JobOptions::new().priority(3).max_retries(1);
        let merged = JobOptions::new().group("mail").priority(3).max_retries(1);
        assert_eq!(NewJob::of(Mail).with(more()).options, merged);
        assert_eq!(NewJobs::of(&[Mail]).with(more()).options, merged);
        assert_eq!(NewJob::from(Mail).options, Mail::options());
    }
}
