//! Manifests: stored definitions of what runs and when.
//!
//! Enters: what a person says with `trax.schedule` and its companions. Leaves: a definition, and in
//! `trax.manifest_state` the time of its next run; a job when it is triggered by hand.
//! Holds: a definition that is stored can be evaluated; what is not given keeps its value; a schedule that did not
//! change keeps its next run.

use crate::clock::{Timestamp, interval_micros};
use crate::entry::{Call, sql_function};
use crate::error::{Error, Result};
use crate::group::HIGHEST_PRIORITY;
use crate::manifest_state::{self, NextRun, ParkedOn};
use crate::outcome;
use crate::schedule::Cron;
use crate::server_zone::ServerZone;
use crate::spi::{self, Spi, SpiRow, arg, statement};
use crate::work_queue::{self, NewJob};
use pgrx::datum::Interval;
use pgrx::pg_sys;

const CRON_BYTES: usize = 255;

statement!(MANIFEST_FIND, "manifest_find.sql", TEXTOID);
statement!(
    MANIFEST_SAVE,
    "manifest_save.sql",
    TEXTOID,
    TEXTOID,
    JSONBOID,
    TEXTOID,
    TEXTOID,
    INTERVALOID,
    TIMESTAMPTZOID,
    TEXTOID,
    INT4OID,
    INT4OID,
    INTERVALOID,
    INTERVALOID,
    TIMESTAMPTZOID,
    TIMESTAMPTZOID,
    BOOLOID,
    BOOLOID,
    TIMESTAMPTZOID
);
statement!(MANIFEST_LOCK, "manifest_lock.sql", TEXTOID);
statement!(MANIFEST_SHARE, "manifest_share.sql", TEXTOID);
statement!(
    MANIFEST_SWITCH,
    "manifest_switch.sql",
    INT8OID,
    BOOLOID,
    TIMESTAMPTZOID
);
statement!(MANIFEST_REMOVE, "manifest_remove.sql", INT8OID);
statement!(
    MANIFEST_CANCEL_QUEUED,
    "manifest_cancel_queued.sql",
    INT8OID
);

sql_function!(trax_schedule, pg_finfo_trax_schedule, |call| {
    let change = Change::from_call(call)?;
    let id = spi::connected(|spi| schedule(spi, &change))?;
    Ok(call.value(id))
});

sql_function!(trax_unschedule, pg_finfo_trax_unschedule, |call| {
    let name = call.name(0, "name")?;
    spi::connected(|spi| unschedule(spi, &name, Timestamp::now()))?;
    Ok(call.null())
});

sql_function!(
    trax_enable_manifest,
    pg_finfo_trax_enable_manifest,
    |call| {
        let name = call.name(0, "name")?;
        spi::connected(|spi| switch(spi, &name, true, Timestamp::now()))?;
        Ok(call.null())
    }
);

sql_function!(
    trax_disable_manifest,
    pg_finfo_trax_disable_manifest,
    |call| {
        let name = call.name(0, "name")?;
        spi::connected(|spi| switch(spi, &name, false, Timestamp::now()))?;
        Ok(call.null())
    }
);

sql_function!(trax_trigger, pg_finfo_trax_trigger, |call| {
    let name = call.name(0, "name")?;
    let input = call.datum(1);
    input.map_or(Ok(()), work_queue::check_input)?;
    let delay = call.optional_not_negative(2, "delay")?.unwrap_or(0);
    let id = spi::connected(|spi| trigger(spi, &name, input, delay, Timestamp::now()))?;
    Ok(call.value(id))
});

/// What a call of `trax.schedule` says. `None` keeps what is stored.
struct Change {
    name: String,
    task: String,
    input: Option<pg_sys::Datum>,
    group: Option<String>,
    cron: Option<String>,
    every: Option<pg_sys::Datum>,
    run_at: Option<Timestamp>,
    timezone: Option<String>,
    priority: Option<i32>,
    max_retries: Option<i32>,
    retry_delay: Option<pg_sys::Datum>,
    timeout: Option<pg_sys::Datum>,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    enabled: Option<bool>,
    now: Timestamp,
}

impl Change {
    fn from_call(call: &Call) -> Result<Self> {
        refuse_what_is_not_built(call)?;
        let change = Self {
            name: call.name(0, "name")?,
            task: call.name(1, "task")?,
            input: call.datum(2),
            cron: call.optional(3),
            every: call.optional_positive(4, "every")?.and(call.datum(4)),
            run_at: call.optional(5),
            timezone: call.optional(9),
            group: call.optional_name(10, "group_name")?,
            priority: call.optional_within(11, "priority", 0, HIGHEST_PRIORITY)?,
            max_retries: call.optional_within(12, "max_retries", 0, i32::MAX - 1)?,
            retry_delay: call
                .optional_not_negative(13, "retry_delay")?
                .and(call.datum(13)),
            timeout: call.optional_positive(14, "timeout")?.and(call.datum(14)),
            starts_at: call.optional(22),
            ends_at: call.optional(23),
            enabled: call.optional(24),
            now: Timestamp::now(),
        };
        change.input.map_or(Ok(()), work_queue::check_input)?;
        change.check_schedule()?;
        Ok(change)
    }

    fn gives_schedule(&self) -> bool {
        self.cron.is_some() || self.every.is_some() || self.run_at.is_some()
    }

    fn check_schedule(&self) -> Result<()> {
        let given = [
            self.cron.is_some(),
            self.every.is_some(),
            self.run_at.is_some(),
        ];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err(Error::invalid("a manifest has one kind of schedule")
                .detail("More than one of cron, every and run_at is given.")
                .hint(
                    "Give one of cron => '0 2 * * *', every => interval '5 min' or run_at => '...'",
                ));
        }
        if let Some(text) = &self.cron {
            parse_cron(text)?;
        }
        if let Some(name) = &self.timezone {
            ServerZone::named(name)?;
        }
        let times = [
            ("run_at", self.run_at),
            ("starts_at", self.starts_at),
            ("ends_at", self.ends_at),
        ];
        for (name, time) in times {
            if time.is_some_and(|time| !time.is_finite()) {
                return Err(
                    Error::invalid(format!("argument \"{name}\" must be a finite time"))
                        .detail(format!("{name} is infinity or -infinity."))
                        .hint(format!(
                            "Give a time, for example: {name} => now() + interval '1 day'"
                        )),
                );
            }
        }
        Ok(())
    }
}

/// Arguments of the contract whose work is still to come: refused, never silently dropped.
fn refuse_what_is_not_built(call: &Call) -> Result<()> {
    const NOT_BUILT: [(usize, &str); 10] = [
        (6, "depends_on"),
        (7, "depends_mode"),
        (8, "dormant"),
        (15, "misfire"),
        (16, "misfire_threshold"),
        (17, "misfire_limit"),
        (18, "overlap"),
        (19, "max_concurrency"),
        (20, "variance"),
        (21, "exclusions"),
    ];
    match NOT_BUILT
        .iter()
        .find(|&&(index, _)| call.datum(index).is_some())
    {
        Some((_, name)) => Err(Error::not_supported(format!(
            "argument \"{name}\" is not supported yet"
        ))
        .detail(format!(
            "This version of trax stores no {name} other than the default."
        ))
        .hint(format!("Leave {name} out."))),
        None => Ok(()),
    }
}

/// A cron expression, or 22023 with the position of the mistake.
pub(crate) fn parse_cron(text: &str) -> Result<Cron> {
    if text.len() > CRON_BYTES {
        return Err(Error::too_large("the cron expression is too long")
            .detail(format!(
                "It has {} bytes; the limit is {CRON_BYTES}.",
                text.len()
            ))
            .hint("Shorten the lists in it, or split it over several manifests."));
    }
    Cron::parse(text).map_err(|error| {
        Error::invalid(format!(
            "cron expression \"{text}\" is not valid: {}",
            error.message
        ))
        .detail(format!("The mistake is at position {}.", error.position))
        .hint(error.hint)
    })
}

/// What is stored of a manifest, as far as its next run and its jobs depend on it.
pub(crate) struct Definition {
    id: i64,
    name: String,
    task: String,
    group: String,
    priority: i32,
    max_retries: Option<i32>,
    enabled: bool,
    retired: bool,
    timing: Timing,
    last_success_at: Option<Timestamp>,
}

/// When a manifest runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) cron: Option<String>,
    pub(crate) every: Option<Interval>,
    pub(crate) run_at: Option<Timestamp>,
    pub(crate) timezone: String,
    pub(crate) starts_at: Option<Timestamp>,
    pub(crate) ends_at: Option<Timestamp>,
}

impl Definition {
    fn read(name: &str, row: &SpiRow) -> Self {
        Self {
            id: row.must(1),
            name: name.to_string(),
            task: row.must(2),
            group: row.must(4),
            priority: i32::from(row.must::<i16>(5)),
            max_retries: row.get(6),
            enabled: row.must(9),
            timing: Timing {
                cron: row.get(10),
                every: row.get(11),
                run_at: row.get(12),
                timezone: row.must(13),
                starts_at: row.get(14),
                ends_at: row.get(15),
            },
            retired: row.get::<String>(16).is_some(),
            last_success_at: row.get(17),
        }
    }

    /// The first run of a schedule that begins, or begins again, now.
    fn first_run(&self, now: Timestamp) -> Result<NextRun> {
        if !self.enabled {
            return Ok(NextRun::Parked(ParkedOn::Disabled));
        }
        let from = self.timing.starts_at.map_or(now, |start| start.max(now));
        let next = if let Some(text) = &self.timing.cron {
            // An occurrence at the very start counts.
            let after = if from > now { from.plus(-1) } else { now };
            next_occurrence(
                &parse_cron(text)?,
                after,
                &ServerZone::named(&self.timing.timezone)?,
            )
        } else if let Some(every) = &self.timing.every {
            let due = self
                .last_success_at
                .map(|last| last.plus(interval_micros(every)));
            Some(due.map_or(from, |due| due.max(from)))
        } else {
            match self.timing.run_at {
                Some(at) => Some(at.max(self.timing.starts_at.unwrap_or(at))),
                None => return Ok(NextRun::Never),
            }
        };
        Ok(self.timing.bounded(next))
    }
}

impl Timing {
    /// An occurrence, unless it comes when the schedule has ended.
    pub(crate) fn bounded(&self, next: Option<Timestamp>) -> NextRun {
        match next {
            Some(at) if self.ends_at.is_none_or(|end| at < end) => NextRun::At(at),
            _ => NextRun::Parked(ParkedOn::Ended),
        }
    }
}

/// The first occurrence strictly after a time.
pub(crate) fn next_occurrence(
    cron: &Cron,
    after: Timestamp,
    zone: &ServerZone,
) -> Option<Timestamp> {
    cron.next(after.unix_micros(), zone)
        .map(|occurrence| Timestamp::from_unix_micros(occurrence.at_micros))
}

fn find(spi: &Spi, name: &str) -> Option<Definition> {
    spi.query(&MANIFEST_FIND, &[arg(name)])
        .first()
        .map(|row| Definition::read(name, &row))
}

/// The definition of a manifest that is about to change, locked.
fn lock(spi: &Spi, name: &str) -> Option<Definition> {
    spi.query(&MANIFEST_LOCK, &[arg(name)]);
    // Read after the lock: whoever held it may have changed the row.
    find(spi, name)
}

fn must_lock(spi: &Spi, name: &str) -> Result<Definition> {
    lock(spi, name).ok_or_else(|| Error::unknown_manifest(name))
}
fn schedule(spi: &Spi, change: &Change) -> Result<i64> {
    let before = lock(spi, &change.name);
    save(spi, change, revives(before.as_ref(), change));
    let mut after = match find(spi, &change.name) {
        Some(definition) => definition,
        None => new_definition(spi, &change.name, change.now)?,
    };
    let same = before.as_ref().is_some_and(|before| {
        before.timing == after.timing && before.enabled == after.enabled && before.id == after.id
    });
    if !same {
        if before.is_some_and(|before| before.timing != after.timing) {
            // The new schedule owes nothing to runs of the old one.
            after.last_success_at = None;
        }
        let next = after.first_run(change.now)?;
        manifest_state::arm(spi, after.id, next, change.now);
    } // It may have moved to another group; the next cycle looks.
    manifest_state::unpark(spi, after.id, ParkedOn::GroupDisabled);
    work_queue::ensure_lane(spi, &after.group, &after.task);
    Ok(after.id)
}

/// A new time for a manifest that trax switched off after its one run switches it on again.
fn revives(before: Option<&Definition>, change: &Change) -> Option<bool> {
    match before {
        Some(before) if change.enabled.is_none() && before.retired => {
            let same = change.run_at.is_some() && change.run_at == before.timing.run_at;
            (change.gives_schedule() && !same).then_some(true)
        }
        _ => change.enabled,
    }
}

/// A row of `trax.manifest` without a state is new: it gets one.
fn new_definition(spi: &Spi, name: &str, now: Timestamp) -> Result<Definition> {
    let rows = spi.query(&MANIFEST_LOCK, &[arg(name)]);
    let id = rows
        .first()
        .expect("the manifest that was just saved")
        .must::<i64>(1);
    manifest_state::arm(spi, id, NextRun::Never, now);
    must_lock(spi, name)
}

fn save(spi: &Spi, change: &Change, enabled: Option<bool>) {
    spi.execute(
        &MANIFEST_SAVE,
        &[
            arg(change.name.as_str()),
            arg(change.task.as_str()),
            change.input,
            change.group.as_deref().and_then(arg),
            change.cron.as_deref().and_then(arg),
            change.every,
            change.run_at.and_then(arg),
            change.timezone.as_deref().and_then(arg),
            change.priority.and_then(arg),
            change.max_retries.and_then(arg),
            change.retry_delay,
            change.timeout,
            change.starts_at.and_then(arg),
            change.ends_at.and_then(arg),
            arg(change.gives_schedule()),
            enabled.and_then(arg),
            arg(change.now),
        ],
    );
}

/// Forgets the definition and cancels what waits; what runs goes on, and history stays.
fn unschedule(spi: &Spi, name: &str, now: Timestamp) -> Result<()> {
    let definition = must_lock(spi, name)?;
    // The state goes first: a cycle that is about to queue this manifest ends before we look at what waits.
    spi.execute(&MANIFEST_REMOVE, &[arg(definition.id)]);
    let waiting: Vec<i64> = spi
        .query(&MANIFEST_CANCEL_QUEUED, &[arg(definition.id)])
        .iter()
        .map(|row| row.must(1))
        .collect();
    for job_id in waiting {
        outcome::cancel_queued(spi, job_id, now);
    }
    Ok(())
}

/// Switches a manifest on or off. Switched on, it begins anew: what it missed meanwhile is not made up for.
fn switch(spi: &Spi, name: &str, enabled: bool, now: Timestamp) -> Result<()> {
    let mut definition = must_lock(spi, name)?;
    if definition.enabled == enabled {
        return Ok(());
    }
    spi.execute(
        &MANIFEST_SWITCH,
        &[arg(definition.id), arg(enabled), arg(now)],
    );
    definition.enabled = enabled;
    let next = if enabled && definition.retired {
        NextRun::Parked(ParkedOn::Ended)
    } else {
        definition.first_run(now)?
    };
    manifest_state::arm(spi, definition.id, next, now);
    Ok(())
}

/// Queues a job of a manifest by hand; its schedule is not touched, and nothing but the queue holds it back.
fn trigger(
    spi: &Spi,
    name: &str,
    input: Option<pg_sys::Datum>,
    delay: i64,
    now: Timestamp,
) -> Result<i64> {
    spi.query(&MANIFEST_SHARE, &[arg(name)]);
    let rows = spi.query(&MANIFEST_FIND, &[arg(name)]);
    let row = rows.first().ok_or_else(|| Error::unknown_manifest(name))?;
    let definition = Definition::read(name, &row);
    let job = NewJob {
        task: definition.task,
        group: definition.group,
        priority: definition.priority,
        run_at: now.plus(delay),
        now,
        max_retries: definition.max_retries,
        timeout: row.datum(8),
        retry_delay: row.datum(7),
        unique_key: None,
        concurrency_key: None,
        trace: None,
        manifest: Some((definition.id, definition.name)),
    };
    Ok(work_queue::enqueue(spi, &job, &[input.or(row.datum(3))])[0])
}
