//! The options of a job.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use crate::id::JobId;
use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::json::Json;
use crate::sql::{Argument, Call, Interval, Time};
use crate::trace::TraceContext;

/// The effect of enqueueing on the job that waits with the same unique key.
///
/// A job that is executed, is suspended, or has recorded steps has begun: it stays as it is. With
/// [`Replace`](Self::Replace) and [`Postpone`](Self::Postpone) a new job then takes the key over,
/// unless the time of [`unique_for`](JobOptions::unique_for) is not over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The job that waits stays as it is, and nothing is queued.
    #[default]
    Keep,
    /// The job that waits gets the new input and options, and keeps its time.
    Replace,
    /// The job that waits also gets the new [`run_at`](JobOptions::run_at), which must be set: it
    /// begins when no call has postponed it for so long.
    Postpone,
}

impl OnDuplicate {
    /// Returns the name that the server knows it by.
    pub fn name(self) -> &'static str {
        match self {
            OnDuplicate::Keep => "keep",
            OnDuplicate::Replace => "replace",
            OnDuplicate::Postpone => "postpone",
        }
    }
}

impl Argument for OnDuplicate {
    const TYPE: Type = Type::TEXT;
}

impl ToSql for OnDuplicate {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        self.name().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <&str as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

/// The options of a job. Options that are not set take the server's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOptions {
    pub(crate) run_at: Option<Time>,
    pub(crate) group_name: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) max_retries: Option<i32>,
    pub(crate) timeout: Option<Interval>,
    pub(crate) unique_key: Option<String>,
    pub(crate) concurrency_key: Option<String>,
    pub(crate) trace: Option<Json>,
    pub(crate) retry_delay: Option<Interval>,
    pub(crate) unique_for: Option<Interval>,
    pub(crate) version: Option<String>,
    pub(crate) batch: Option<i64>,
    pub(crate) rate: Option<String>,
    pub(crate) rate_key: Option<String>,
    pub(crate) cost: Option<i32>,
    pub(crate) on_duplicate: Option<OnDuplicate>,
}

impl JobOptions {
    /// Returns options with nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time before which the job cannot be claimed.
    pub fn run_at(mut self, at: SystemTime) -> Self {
        self.run_at = Some(Time(at));
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

    /// Sets the version of the program that the job needs: of the workers that name versions
    /// ([`Worker::versions`](crate::Worker::versions)), only those that name this one take it.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Adds the job to a batch, from [`Client::open_batch`](crate::Client::open_batch).
    pub fn batch(mut self, batch: JobId) -> Self {
        self.batch = Some(batch.0);
        self
    }

    /// Sets the rate under which the job starts, as `trax.configure_rate` has configured it.
    pub fn rate(mut self, name: impl Into<String>) -> Self {
        self.rate = Some(name.into());
        self
    }

    /// Sets the key of the rate that the job uses: each key has a rate of its own.
    pub fn rate_key(mut self, key: impl Into<String>) -> Self {
        self.rate_key = Some(key.into());
        self
    }

    /// Sets how much of its rate the job uses; default 1.
    pub fn cost(mut self, cost: i32) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets what happens to the job that waits with the same unique key.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// use trax_client::{JobOptions, OnDuplicate};
    ///
    /// // The index is written 5 seconds after the last change of the document.
    /// let options = JobOptions::new()
    ///     .unique_key("search.index 7")
    ///     .run_at(SystemTime::now() + Duration::from_secs(5))
    ///     .on_duplicate(OnDuplicate::Postpone);
    /// ```
    pub fn on_duplicate(mut self, choice: OnDuplicate) -> Self {
        self.on_duplicate = Some(choice);
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
            version: over.version.or(self.version),
            batch: over.batch.or(self.batch),
            rate: over.rate.or(self.rate),
            rate_key: over.rate_key.or(self.rate_key),
            cost: over.cost.or(self.cost),
            on_duplicate: over.on_duplicate.or(self.on_duplicate),
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
            .option("version", &self.version)
            .option("batch", &self.batch)
            .option("rate", &self.rate)
            .option("rate_key", &self.rate_key)
            .option("cost", &self.cost)
            .option("on_duplicate", &self.on_duplicate)
    }
}
