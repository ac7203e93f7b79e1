//! Tasks: the defaults of the jobs of a task, which say nothing else.
//!
//! Enters: the settings of a task. Leaves: for the jobs that are queued from then on `max_retries`,
//! `retry_delay` and `timeout`; for those that fail the growth of the delay, and whether a dead
//! letter waits for a person. Holds: a session caches the settings until they change, so a job of a
//! task without settings costs a look at an empty map.

use crate::audit;
use crate::audit::Kind;
use crate::error::{Error, Result};
use crate::server::call::{Call, sql_function};
use crate::server::choice::one_of;
use crate::server::clock::{Timestamp, interval_micros};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::watched::{Cache, TASKS};
use crate::stored_settings::{Difference, StoredSettings};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

/// The values of `on_final_failure`.
pub(crate) const ON_FINAL_FAILURE: [&str; 2] = ["dead_letter", "acknowledge"];
/// The limits of `backoff`, as of `trax.retry_backoff`.
pub(crate) static BACKOFF: RangeInclusive<f64> = 1.0..=100.0;

row! {
    /// The settings of a task; `None` is the setting of the server.
    pub(crate) struct Defaults {
        name: String,
        max_retries: Option<i32>,
        retry_delay: Option<Interval>,
        backoff: Option<f64>,
        retry_delay_max: Option<Interval>,
        timeout: Option<Interval>,
        acknowledges: bool,
    }
}
statement!(TaskAll, "task/all.sql" -> Defaults);
statement!(
    TaskSave, "task/save.sql",
    {
        name: TEXTOID,
        max_retries: INT4OID,
        retry_delay: INTERVALOID,
        backoff: FLOAT8OID,
        retry_delay_max: INTERVALOID,
        timeout: INTERVALOID,
        on_final_failure: TEXTOID,
        now: TIMESTAMPTZOID,
        replaces: BOOLOID,
        source: TEXTOID,
    }
);
statement!(TaskForget, "task/forget.sql", { name: TEXTOID });

sql_function!(trax_configure_task, pg_finfo_trax_configure_task, |call| {
    let settings = Settings::from_call(call)?;
    spi::connected(|spi| {
        let difference = store(spi, &settings, Timestamp::now());
        audit::record_change(spi, "configure", Kind::Task, &settings.name, &difference);
        Ok(())
    })?;
    Ok(call.null())
});

sql_function!(trax_reset_task, pg_finfo_trax_reset_task, |call| {
    let name = call.name(0, "task")?;
    spi::connected(|spi| {
        if !forget(spi, &name) {
            return Err(without_defaults(&name));
        }
        audit::record(spi, "configure", Kind::Task, &name, Some("reset"));
        Ok(())
    })?;
    Ok(call.null())
});

/// Settings of a task; `None` keeps the stored value, or removes it when all are replaced.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) max_retries: Option<i32>,
    pub(crate) retry_delay: Option<pg_sys::Datum>,
    pub(crate) backoff: Option<f64>,
    pub(crate) retry_delay_max: Option<pg_sys::Datum>,
    pub(crate) timeout: Option<pg_sys::Datum>,
    pub(crate) on_final_failure: Option<String>,
    /// They come from `trax.apply`, and replace all settings.
    pub(crate) applied: bool,
    /// The source of their document.
    pub(crate) source: Option<String>,
}

impl Settings {
    fn from_call(call: &Call) -> Result<Self> {
        call.optional_not_negative(2, "retry_delay")?;
        call.optional_not_negative(4, "retry_delay_max")?;
        call.optional_positive(5, "timeout")?;
        let backoff = call.optional::<f64>(3);
        backoff.map_or(Ok(()), check_backoff)?;
        Ok(Self {
            name: call.new_name(0, "task")?,
            max_retries: call.optional_within(1, "max_retries", 0, i32::MAX - 1)?,
            retry_delay: call.datum(2),
            backoff,
            retry_delay_max: call.datum(4),
            timeout: call.datum(5),
            on_final_failure: one_of(
                call.optional_text(6, "on_final_failure")?,
                "on_final_failure",
                &ON_FINAL_FAILURE,
            )?,
            applied: false,
            source: None,
        })
    }
}

fn check_backoff(backoff: f64) -> Result<()> {
    if BACKOFF.contains(&backoff) {
        return Ok(());
    }
    let (low, high) = (BACKOFF.start(), BACKOFF.end());
    Err(Error::invalid(format!(
        "argument \"backoff\" must be between {low} and {high}"
    ))
    .detail(format!("backoff is {backoff}."))
    .hint(format!(
        "Specify a number from {low} to {high}: backoff => 2"
    )))
}

/// Stores the settings of a task; returns the difference.
pub(crate) fn store(spi: &Spi, settings: &Settings, now: Timestamp) -> Difference {
    let before = StoredSettings::of_task(spi, &settings.name);
    spi.execute(TaskSave {
        name: arg(settings.name.as_str()),
        max_retries: settings.max_retries.and_then(arg),
        retry_delay: settings.retry_delay,
        backoff: settings.backoff.and_then(arg),
        retry_delay_max: settings.retry_delay_max,
        timeout: settings.timeout,
        on_final_failure: settings.on_final_failure.as_deref().and_then(arg),
        now: arg(now),
        replaces: arg(settings.applied),
        source: settings.source.as_deref().and_then(arg),
    });
    before.difference(&StoredSettings::of_task(spi, &settings.name))
}

fn without_defaults(name: &str) -> Error {
    Error::unknown(format!("task \"{name}\" has no defaults of its own"))
        .detail(format!("No row of trax.task has the name \"{name}\"."))
        .hint("List the names with: select name from trax.task order by name")
}

/// Deletes the settings of a task; returns whether there were any.
pub(crate) fn forget(spi: &Spi, name: &str) -> bool {
    spi.execute(TaskForget { name: arg(name) }) > 0
}

/// The settings of all tasks that have some.
#[derive(Default)]
pub(crate) struct Tasks(HashMap<String, Defaults>);

thread_local! {
    static CACHED: Cache<Tasks> = const { Cache::new(None) };
}

/// Returns the settings of all tasks, as committed now. The caller has the rights of the owner.
pub(crate) fn all() -> Rc<Tasks> {
    TASKS.rows(&CACHED, |spi| {
        let rows = spi.query_latest(TaskAll);
        Tasks(rows.iter().map(|task| (task.name.clone(), task)).collect())
    })
}

impl Tasks {
    pub(crate) fn of(&self, task: &str) -> Option<&Defaults> {
        self.0.get(task)
    }
}

impl Defaults {
    /// Returns the longest delay before a retry.
    pub(crate) fn longest_delay(&self) -> Option<Duration> {
        let micros = self.retry_delay_max.as_ref().map(interval_micros);
        micros.map(|micros| Duration::from_micros(micros.max(0) as u64))
    }
}
