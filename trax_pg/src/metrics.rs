//! Tallies: counts what transactions did, for `trax.metrics()`.
//!
//! Enters: a call from each point where an attempt, a job or a cycle ends. Leaves: counters in
//! shared memory, raised when the transaction commits. Holds: rolled-back work is not counted;
//! counting takes no lock on the way and never fails; no decision depends on a counter. A prepared
//! transaction, and a server that does not preload the library, count nothing. Cost, compared to a
//! library that counts nothing: within the noise for a claim (248 µs) or a completion (193 µs) of
//! 100 jobs, half a microsecond for a completion of one (6 µs).

use crate::columns::{Leased, Outcome, Waiting};
use crate::memory::counters;
use crate::memory::counters::{
    BOUNDS, BUCKETS, DatabaseTally, Histogram, OUTCOMES, STALE, TaskTally, bucket,
};
use crate::server::bounded_cache::BoundedCache;
use crate::server::call::{Rows, sql_function};
use crate::server::clock::Timestamp;
use crate::server::spi::arg;
use crate::server::table::Row;
use crate::server::transaction;
use pgrx::{JsonB, pg_sys};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// The number of tasks whose tallies a session caches.
const TASKS_KEPT: usize = 1024;

sql_function!(trax_tallies, pg_finfo_trax_tallies, |call| {
    let mut samples = Samples(call.rows());
    let version = env!("CARGO_PKG_VERSION");
    samples.push("trax_library_info", json!({ "version": version }), 1.0);
    if let Some(database) = counters::database_tally() {
        samples.of_database(database);
    }
    for task in counters::task_tallies() {
        samples.of_task(task);
    }
    Ok(samples.0.end())
});

/// The rows of `trax.tallies()`: name, labels, value.
struct Samples(Rows);

impl Samples {
    fn push(&mut self, name: &str, labels: Value, value: f64) {
        self.0.push(&[arg(name), arg(JsonB(labels)), arg(value)]);
    }

    fn of_database(&mut self, tally: &DatabaseTally) {
        for (call, count) in STALE_CALLS.iter().zip(&tally.stale) {
            let labels = json!({ "call": call });
            self.push(
                "trax_stale_calls_total",
                labels,
                number(counters::read(count)),
            );
        }
        let cycles = counters::read(&tally.cycles);
        let seconds = counters::read(&tally.cycle_micros) as f64 / MICROS;
        self.push(
            "trax_cycle_duration_seconds_count",
            json!({}),
            number(cycles),
        );
        self.push("trax_cycle_duration_seconds_sum", json!({}), seconds);
        let last = Timestamp(tally.last_cycle.load(Ordering::Relaxed));
        if last.0 != 0 {
            let seconds = counters::read(&tally.last_cycle_micros) as f64 / MICROS;
            self.push("trax_last_cycle_duration_seconds", json!({}), seconds);
            self.push(
                "trax_last_cycle_timestamp_seconds",
                json!({}),
                unix_seconds(last),
            );
        }
    }

    fn of_task(&mut self, tally: &TaskTally) {
        let name = String::from_utf8_lossy(tally.task());
        // A database has a limited number of tallies; the remaining tasks share one.
        let task = if name.is_empty() { "(others)" } else { &name };
        let labels = || json!({ "task": task });
        let claims = number(counters::read(&tally.claims));
        self.push("trax_claims_total", labels(), claims);
        let last = Timestamp(tally.last_claim.load(Ordering::Relaxed));
        if last.0 != 0 {
            self.push(
                "trax_last_claim_timestamp_seconds",
                labels(),
                unix_seconds(last),
            );
        }
        let outcomes = tally
            .outcomes
            .each_ref()
            .map(|count| number(counters::read(count)));
        let of = |outcome: Outcome| outcomes[outcome as usize];
        self.push("trax_completions_total", labels(), of(Outcome::Completed));
        self.push("trax_cancellations_total", labels(), of(Outcome::Cancelled));
        for outcome in Outcome::ALL {
            let Some(kind) = outcome.failure_kind() else {
                continue;
            };
            let labels = json!({ "task": task, "kind": kind });
            self.push("trax_failures_total", labels, of(outcome));
        }
        self.push(
            "trax_leases_lost_total",
            labels(),
            of(Outcome::LeaseExpired),
        );
        self.push(
            "trax_retries_total",
            labels(),
            number(counters::read(&tally.retries)),
        );
        self.histogram("trax_wait_seconds", task, &tally.wait);
        self.histogram("trax_run_seconds", task, &tally.run);
    }

    fn histogram(&mut self, name: &str, task: &str, histogram: &Histogram) {
        let (buckets, micros) = histogram.read();
        let mut below = 0;
        for (index, count) in buckets.iter().enumerate() {
            below += count;
            let le = match BOUNDS.get(index) {
                Some(bound) => (*bound as f64 / MICROS).to_string(),
                None => "+Inf".to_owned(),
            };
            let labels = json!({ "task": task, "le": le });
            self.push(&format!("{name}_bucket"), labels, number(below));
        }
        self.push(
            &format!("{name}_count"),
            json!({ "task": task }),
            number(below),
        );
        let sum = micros as f64 / MICROS;
        self.push(&format!("{name}_sum"), json!({ "task": task }), sum);
    }
}

/// Microseconds in a second.
const MICROS: f64 = 1e6;

fn number(count: u64) -> f64 {
    count as f64
}

fn unix_seconds(at: Timestamp) -> f64 {
    at.unix_micros() as f64 / MICROS
}

/// The call that a worker made for a lease that it no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    Complete,
    Fail,
    Release,
    AcknowledgeCancel,
    Heartbeat,
    CancelOwn,
}

/// The calls in the order of [`Stale`].
const STALE_CALLS: [&str; STALE] = [
    "complete",
    "fail",
    "release",
    "acknowledge_cancel",
    "heartbeat",
    "cancel_own",
];

/// The counts of one transaction, or of one of its subtransactions, for one task.
struct TaskDelta {
    level: pg_sys::SubTransactionId,
    tally: usize,
    claims: u32,
    claimed_at: i64,
    outcomes: [u32; OUTCOMES],
    retries: u32,
    wait: Times,
    run: Times,
}

/// A histogram of durations.
#[derive(Default)]
struct Times {
    buckets: [u32; BUCKETS],
    micros: u64,
}

impl Times {
    fn add(&mut self, micros: i64) {
        let micros = micros.max(0);
        self.buckets[bucket(micros)] += 1;
        self.micros = self.micros.saturating_add(micros as u64);
    }

    fn publish(&self, histogram: &Histogram) {
        if self.buckets.iter().any(|&count| count > 0) {
            histogram.add(&self.buckets, self.micros);
        }
    }
}

/// The same for the database.
struct DatabaseDelta {
    level: pg_sys::SubTransactionId,
    what: DatabaseEvent,
}

enum DatabaseEvent {
    Stale(Stale, u64),
    Cycle { began: i64, micros: u64 },
}

/// The state of this process: the tallies of tasks, and the counts of its current transaction.
#[derive(Default)]
struct Local {
    tallies: BoundedCache<String, Option<usize>, TASKS_KEPT>,
    tasks: Vec<TaskDelta>,
    database: Vec<DatabaseDelta>,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::default());
}

/// Counts claims: the rows taken from the queue.
pub(crate) fn claimed<'a>(taken: impl ExactSizeIterator<Item = &'a Row>, now: Timestamp) {
    each(
        taken,
        |row| name(row, Waiting::Task),
        |row, delta| {
            delta.claims += 1;
            delta.claimed_at = now.0;
            let wait = now.0.saturating_sub(row.number(Waiting::RunAt));
            delta.wait.add(wait);
        },
    );
}

/// Counts attempts that completed: the rows of their leases.
pub(crate) fn completed(leases: &[Row], now: Timestamp) {
    each(
        leases.iter(),
        |row| name(row, Leased::Task),
        |row, delta| {
            delta.outcomes[Outcome::Completed as usize] += 1;
            let run = now.0.saturating_sub(row.number(Leased::StartedAt));
            delta.run.add(run);
        },
    );
}

/// The end of an attempt that did not complete.
pub(crate) struct Ended<'a> {
    pub(crate) task: &'a str,
    pub(crate) started_at: Timestamp,
    pub(crate) outcome: Outcome,
    pub(crate) is_retried: bool,
    pub(crate) at: Timestamp,
}

/// Counts attempts that ended otherwise.
pub(crate) fn ended(endings: &[Ended<'_>]) {
    each(
        endings.iter(),
        |ending| ending.task,
        |ending, delta| {
            delta.outcomes[ending.outcome as usize] += 1;
            delta.retries += u32::from(ending.is_retried);
            delta
                .run
                .add(ending.at.0.saturating_sub(ending.started_at.0));
        },
    );
}

/// Counts jobs that ended while they waited.
pub(crate) fn ended_waiting<T>(jobs: &[T], task: fn(&T) -> &str, outcome: Outcome) {
    each(jobs.iter(), task, |_, delta| {
        delta.outcomes[outcome as usize] += 1;
    });
}

fn name(row: &Row, column: impl Into<usize>) -> &str {
    row.text(column).unwrap_or_default()
}

/// Counts lost leases that a call named.
pub(crate) fn stale(call: Stale, count: usize) {
    if count > 0 {
        count_event(DatabaseEvent::Stale(call, count as u64));
    }
}

/// Counts a finished cycle that began at `began`.
pub(crate) fn cycle(began: Timestamp) {
    let micros = Timestamp::now().0.saturating_sub(began.0).max(0) as u64;
    count_event(DatabaseEvent::Cycle {
        began: began.0,
        micros,
    });
}

impl TaskDelta {
    fn new(level: pg_sys::SubTransactionId, tally: usize) -> Self {
        Self {
            level,
            tally,
            claims: 0,
            claimed_at: 0,
            outcomes: [0; OUTCOMES],
            retries: 0,
            wait: Times::default(),
            run: Times::default(),
        }
    }

    fn publish(&self, tally: &TaskTally) {
        counters::add(&tally.claims, u64::from(self.claims));
        if self.claims > 0 {
            tally
                .last_claim
                .fetch_max(self.claimed_at, Ordering::Relaxed);
        }
        for (all, more) in tally.outcomes.iter().zip(self.outcomes) {
            counters::add(all, u64::from(more));
        }
        counters::add(&tally.retries, u64::from(self.retries));
        self.wait.publish(&tally.wait);
        self.run.publish(&tally.run);
    }
}

impl DatabaseDelta {
    fn publish(&self, tally: &DatabaseTally) {
        match self.what {
            DatabaseEvent::Stale(call, count) => counters::add(&tally.stale[call as usize], count),
            DatabaseEvent::Cycle { began, micros } => {
                counters::add(&tally.cycles, 1);
                counters::add(&tally.cycle_micros, micros);
                tally.last_cycle.fetch_max(began, Ordering::Relaxed);
                tally.last_cycle_micros.store(micros, Ordering::Relaxed);
            }
        }
    }
}

/// Passes each item, with the transaction's counts for its task, to `count`.
fn each<'a, T: 'a>(
    things: impl ExactSizeIterator<Item = &'a T>,
    task: impl Fn(&'a T) -> &'a str,
    mut count: impl FnMut(&'a T, &mut TaskDelta),
) {
    if things.len() == 0 || !crate::memory::available() {
        return;
    }
    transaction::listen();
    let level = level();
    LOCAL.with_borrow_mut(|local| {
        let mut last: Option<(&str, Option<usize>)> = None;
        for thing in things {
            let task = task(thing);
            let index = match last {
                Some((name, index)) if name == task => index,
                _ => local.delta(level, task),
            };
            last = Some((task, index));
            if let Some(index) = index {
                count(thing, &mut local.tasks[index]);
            }
        }
    });
}

impl Local {
    /// Returns the index of the transaction's counts for a task.
    fn delta(&mut self, level: pg_sys::SubTransactionId, task: &str) -> Option<usize> {
        let tally = match self.tallies.get(task) {
            Some(tally) => *tally,
            None => {
                let tally = counters::task_index(task);
                self.tallies.insert(task.to_owned(), tally);
                tally
            }
        }?;
        let known = self
            .tasks
            .iter()
            .position(|delta| delta.tally == tally && delta.level == level);
        Some(known.unwrap_or_else(|| {
            self.tasks.push(TaskDelta::new(level, tally));
            self.tasks.len() - 1
        }))
    }
}

fn count_event(what: DatabaseEvent) {
    // Looks the tally up now: nothing can be looked up at commit.
    if counters::database_tally().is_none() {
        return;
    }
    transaction::listen();
    let level = level();
    LOCAL.with_borrow_mut(|local| local.database.push(DatabaseDelta { level, what }));
}

fn level() -> pg_sys::SubTransactionId {
    // SAFETY: a plain number of this backend's transaction.
    unsafe { pg_sys::GetCurrentSubTransactionId() }
}

/// Adds the counts of the transaction, after its commit.
pub(crate) fn committed() {
    LOCAL.with_borrow_mut(|local| {
        for delta in local.tasks.drain(..) {
            delta.publish(counters::task_tally(delta.tally));
        }
        for delta in local.database.drain(..) {
            if let Some(tally) = counters::database_tally() {
                delta.publish(tally);
            }
        }
    });
}

/// Drops the counts of a subtransaction that was rolled back and of those inside it, which have
/// greater numbers; 0 is all.
pub(crate) fn undone(level: pg_sys::SubTransactionId) {
    LOCAL.with(|local| {
        // Borrowed when the end of the process interrupts the search for a tally, which may wait;
        // the counts are not needed then.
        if let Ok(mut local) = local.try_borrow_mut() {
            local.tasks.retain(|delta| delta.level < level);
            local.database.retain(|delta| delta.level < level);
        }
    });
}
