//! The arguments that describe new jobs.

use super::{check_size, refuse_sql_task};
use crate::columns::{DEFAULT_GROUP, HIGHEST_PRIORITY};
use crate::error::{Error, Result};
use crate::lane;
use crate::rate;
use crate::server::call::Call;
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::arg;
use crate::task::Defaults;
use pgrx::datum::Interval;
use pgrx::pg_sys;

/// The positions of arguments of `trax.enqueue`.
const RUN_AT: usize = 2;
const ON_DUPLICATE: usize = 17;

/// The effect of a new job on the waiting job that has its unique key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnDuplicate {
    #[default]
    Keep,
    /// The waiting job gets the input and the options of the new one.
    Replace,
    /// Its time, too.
    Postpone,
}

impl OnDuplicate {
    /// Returns the argument of a call whose argument `task` is at `first`.
    fn from_call(call: &Call, first: usize, has_key: bool) -> Result<Self> {
        let words = ["keep", "replace", "postpone"];
        let word = call.optional_text(first + ON_DUPLICATE, "on_duplicate")?;
        let choice = match one_of(word, "on_duplicate", &words)?.as_deref() {
            None => return Ok(Self::Keep),
            Some("replace") => Self::Replace,
            Some("postpone") => Self::Postpone,
            Some(_) => Self::Keep,
        };
        if !has_key {
            return Err(Error::invalid("argument \"on_duplicate\" needs a unique key")
                .detail("The argument unique_key is null or left out.")
                .hint("Name the key, for example: unique_key => 'report 7', on_duplicate => 'replace'"));
        }
        if choice == Self::Postpone && call.datum(first + RUN_AT).is_none() {
            return Err(Error::invalid("on_duplicate \"postpone\" needs a time")
                .detail("The argument run_at is null or left out.")
                .hint("Specify the time, for example: run_at => now() + interval '5 s'; to keep the time of the job that waits: on_duplicate => 'replace'"));
        }
        Ok(choice)
    }
}

/// The common values of jobs enqueued together.
pub(crate) struct NewJob {
    pub(crate) task: String,
    pub(crate) group: String,
    pub(crate) priority: i32,
    pub(crate) run_at: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) max_retries: Option<i32>,
    pub(crate) timeout: Option<pg_sys::Datum>,
    pub(crate) retry_delay: Option<pg_sys::Datum>,
    pub(crate) unique_key: Option<String>,
    /// The shortest time for which the key stays alive, in microseconds.
    pub(crate) unique_for: Option<i64>,
    pub(crate) on_duplicate: OnDuplicate,
    /// The ended job that it replaces, whose key it takes over.
    pub(crate) replaces: Option<i64>,
    pub(crate) concurrency_key: Option<String>,
    pub(crate) trace: Option<pg_sys::Datum>,
    /// The role that runs a SQL job.
    pub(crate) run_as: Option<String>,
    /// The version of the program that it needs.
    pub(crate) version: Option<String>,
    /// The rate under which it starts.
    pub(crate) rate: Option<rate::OfJob>,
    /// The manifest's id and name.
    pub(crate) manifest: Option<(i64, String)>,
    /// The job that spawned it, or whose steps it undoes.
    pub(crate) parent_job_id: Option<i64>,
    /// How many steps it has already recorded.
    pub(crate) steps: usize,
    /// A producer has queued it: a full group may refuse or drop it.
    pub(crate) is_admitted: bool,
    /// It needs the end of other jobs.
    pub(crate) waits_for_jobs: bool,
    /// The batch that it is added to.
    pub(crate) batch: Option<i64>,
}

/// Options of a job, or the defaults of its task.
pub(super) struct OrDefaults {
    pub(super) max_retries: Option<i32>,
    pub(super) timeout: Option<pg_sys::Datum>,
    pub(super) retry_delay: Option<pg_sys::Datum>,
}

impl NewJob {
    /// Returns the common arguments of `trax.enqueue` and `trax.enqueue_many`.
    pub(crate) fn from_call(call: &Call, now: Timestamp) -> Result<Self> {
        let job = Self::of_any_task(call, now)?;
        refuse_sql_task(&job.task)?;
        Ok(job)
    }

    /// Returns a job with the default options.
    pub(crate) fn plain(task: String, group: String, now: Timestamp) -> Self {
        Self {
            task,
            group,
            priority: 0,
            run_at: now,
            now,
            max_retries: None,
            timeout: None,
            retry_delay: None,
            unique_key: None,
            unique_for: None,
            on_duplicate: OnDuplicate::Keep,
            replaces: None,
            concurrency_key: None,
            trace: None,
            run_as: None,
            version: None,
            rate: None,
            manifest: None,
            parent_job_id: None,
            steps: 0,
            is_admitted: false,
            waits_for_jobs: false,
            batch: None,
        }
    }

    /// Does the same as [`from_call`](Self::from_call), for SQL jobs too.
    pub(crate) fn of_any_task(call: &Call, now: Timestamp) -> Result<Self> {
        Self::of_arguments(call, 0, now)
    }

    /// Does the same for a call whose argument `task` is at `first`.
    pub(crate) fn of_arguments(call: &Call, first: usize, now: Timestamp) -> Result<Self> {
        spi::require_primary()?;
        let task = call.new_name(first, "task")?;
        let run_at = Self::finite_time(call, first + RUN_AT)?.unwrap_or(now);
        call.optional_positive(first + 6, "timeout")?;
        call.optional_not_negative(first + 10, "retry_delay")?;
        let unique_key = call.optional_name(first + 7, "unique_key")?;
        let unique_for = call.optional_positive(first + 11, "unique_for")?;
        if unique_for.is_some() && unique_key.is_none() {
            return Err(Error::invalid("argument \"unique_for\" needs a unique key")
                .detail("The argument unique_key is null or left out.")
                .hint(
                    "Name the key, for example: unique_key => 'report 7', unique_for => '1 hour'",
                ));
        }
        let on_duplicate = OnDuplicate::from_call(call, first, unique_key.is_some())?;
        let trace = call.datum(first + 9);
        trace.map_or(Ok(()), |trace| check_size("trace", trace))?;
        let group = call.optional_new_name(first + 3, "group_name")?;
        Ok(Self {
            priority: call
                .optional_within(first + 4, "priority", 0, HIGHEST_PRIORITY)?
                .unwrap_or(0),
            // A job could not be claimed before it was queued: its wait begins now.
            run_at: run_at.max(now),
            max_retries: call.optional_within(first + 5, "max_retries", 0, i32::MAX - 1)?,
            timeout: call.datum(first + 6),
            retry_delay: call.datum(first + 10),
            unique_key,
            unique_for,
            on_duplicate,
            concurrency_key: call.optional_name(first + 8, "concurrency_key")?,
            trace,
            version: call.optional_new_name(first + 12, "version")?,
            batch: call.optional::<i64>(first + 13),
            rate: rate::OfJob::from_call(call, first + 14)?,
            is_admitted: true,
            ..Self::plain(task, group.unwrap_or(DEFAULT_GROUP.to_string()), now)
        })
    }

    /// Returns the argument `run_at`.
    pub(super) fn finite_time(call: &Call, index: usize) -> Result<Option<Timestamp>> {
        let run_at = call.optional::<Timestamp>(index);
        run_at
            .map(|at| at.bounded("argument \"run_at\"", "run_at => now() + interval '5 min'"))
            .transpose()
    }

    /// Returns its options that its task may have defaults of.
    pub(super) fn or_defaults(&self, defaults: Option<&Defaults>) -> OrDefaults {
        let of = |own: Option<pg_sys::Datum>, default: fn(&Defaults) -> Option<Interval>| {
            own.or_else(|| defaults.and_then(default).and_then(arg))
        };
        OrDefaults {
            max_retries: self
                .max_retries
                .or(defaults.and_then(|task| task.max_retries)),
            timeout: of(self.timeout, |task| task.timeout),
            retry_delay: of(self.retry_delay, |task| task.retry_delay),
        }
    }

    /// Returns the names that decide its lane.
    pub(super) fn names(&self) -> impl Eq + std::hash::Hash + '_ {
        let (run_as, version) = (self.run_as.as_deref(), self.version.as_deref());
        let rate = self.rate.as_ref().map(rate::OfJob::names);
        (&*self.group, &*self.task, run_as, version, rate)
    }

    pub(super) fn lane(&self) -> i64 {
        lane::of(
            &self.group,
            &self.task,
            self.run_as.as_deref(),
            self.version.as_deref(),
            self.rate.as_ref().map(rate::OfJob::names),
        )
    }

    /// Returns until when its unique key stays alive at least.
    pub(super) fn alive_until(&self) -> Option<Timestamp> {
        self.unique_for.map(|micros| self.now.plus(micros))
    }
}
