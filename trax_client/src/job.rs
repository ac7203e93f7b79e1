//! Jobs as enqueued and claimed.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::error::Result;
use crate::id::{JobId, Token};
use crate::job_options::JobOptions;
use crate::json::Json;
use crate::names;
use crate::sql::Interval;
use crate::task::Task;

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
    pub(crate) min_jobs: Option<i32>,
    pub(crate) max_wait: Option<Interval>,
    pub(crate) tasks: Option<Vec<String>>,
    pub(crate) groups: Option<Vec<String>>,
    pub(crate) versions: Option<Vec<String>>,
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

    /// Claims nothing while fewer jobs than this are ready, 1 to [`max_jobs`](Self::max_jobs),
    /// unless one has been ready for [`max_wait`](Self::max_wait).
    ///
    /// ```
    /// # use std::time::Duration;
    /// use trax_client::ClaimOptions;
    ///
    /// // The documents of one call of an index: 100, or what there is after 5 seconds.
    /// let options = ClaimOptions::new()
    ///     .tasks(["index"])
    ///     .max_jobs(100)
    ///     .min_jobs(100)
    ///     .max_wait(Duration::from_secs(5));
    /// ```
    pub fn min_jobs(mut self, jobs: i32) -> Self {
        self.min_jobs = Some(jobs);
        self
    }

    /// Sets how long a job that is ready waits for others at most. Without it, the claim waits
    /// until [`min_jobs`](Self::min_jobs) are ready, however long.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(Interval(wait));
        self
    }

    /// Limits the claim to jobs of these tasks.
    pub fn tasks<S: AsRef<str>>(mut self, tasks: impl IntoIterator<Item = S>) -> Self {
        self.tasks = Some(names::owned(tasks));
        self
    }

    /// Limits the claim to jobs of these groups.
    pub fn groups<S: AsRef<str>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.groups = Some(names::owned(groups));
        self
    }

    /// Limits the claim to jobs of these versions and jobs without a version.
    pub fn versions<S: AsRef<str>>(mut self, versions: impl IntoIterator<Item = S>) -> Self {
        self.versions = Some(names::owned(versions));
        self
    }

    /// Sets the duration of the lease without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(Interval(lease));
        self
    }

    /// Sets how many of the claimed jobs, from the first, begin as soon as the answer arrives; a
    /// rate starts only these. With it, no job begins with the claim: a job that is lost before a
    /// heartbeat has reported its begin uses up no attempt.
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
        scheduled_for, lease_expires_at, timeout, deadline, trace, steps,
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
    /// How many steps it has recorded in earlier attempts.
    pub steps: i32,
}

impl Claimed {
    pub(crate) const COLUMNS: &'static str = "job_id, attempt, token, task, input, manifest, \
         group_name, scheduled_for, lease_expires_at, timeout, trace, \
         max_attempts, queued_at, steps, pg_catalog.clock_timestamp() + timeout as deadline";

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
            steps: row.try_get(at.steps)?,
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
    pub(crate) close_rate: Option<bool>,
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

    /// Closes the rate and the key of the job for the time of [`retry_in`](Self::retry_in), which
    /// must be set: nothing of them starts before.
    pub fn close_rate(mut self) -> Self {
        self.close_rate = Some(true);
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
