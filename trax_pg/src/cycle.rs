//! The cycle: one pass of the manager, `trax.tick()`.
//!
//! Enters: the clock. Leaves: the counts of each step. Holds: one cycle at a time in a database, by
//! an advisory lock that ends with the transaction; a session that does not get it returns at once.
//! A cycle is one transaction; a step that fails rolls back only itself (`step.rs`), so that one
//! row that cannot be written does not stop everything. Its cost follows the number of due rows,
//! not of all rows, except that it reads leases (`lease/reaper.rs`). With 1,000,000 manifests and
//! none due a cycle takes 0.07 ms and touches 18 buffers; 100,000 that are due at one time are
//! queued in 1.9 s when `trax.max_entries_per_cycle` is 0.

use crate::believed_clock;
use crate::believed_clock::Jump;
use crate::columns::Leased;
use crate::error::{Error, Result};
use crate::instance;
use crate::instance::State;
use crate::lease;
use crate::lease::Reaper;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi;
use crate::server::spi::{Spi, arg};
use crate::server::table::Table;
use crate::server::version;
use crate::{
    changes, cleanup, clock_correction, dead_letter, due, graph, memory, metrics, outcome,
    prepared, repair, setting, step, work_queue,
};
use std::time::Duration;

/// The pause before the next look at due rows that another transaction holds.
const HELD_WAIT: Duration = Duration::from_millis(100);
/// The pause before the next look after a step failed.
const FAILED_WAIT: Duration = Duration::from_secs(1);

sql_function!(trax_tick, pg_finfo_trax_tick, |call| {
    spi::require_primary()?;
    let mut rows = call.rows();
    spi::connected(|spi| {
        instance::require_adopted(spi)?;
        prepared::look_for_ended();
        let now = Timestamp::now();
        let jump = believed_clock::jump(spi, now);
        if let Some(report) = run(spi, now, jump, &mut Reaper::by_hand())? {
            for (step, affected) in report.steps {
                rows.push(&[arg(step), arg(affected)]);
            }
        }
        Ok(())
    })?;
    Ok(rows.end())
});

/// The result of one cycle.
struct Report {
    /// Each step with the number of rows it touched, in order; cleanup steps only when they touched
    /// any.
    steps: Vec<(&'static str, i64)>,
    /// A step stopped at its limit: the next cycle should follow at once.
    more: bool,
    /// A step failed.
    failed: bool,
    /// Another transaction has locked a job that waits for others no longer, or some events were
    /// not read.
    is_held: bool,
}

/// Runs the steps of one cycle.
struct Steps<'spi> {
    spi: &'spi Spi,
    now: Timestamp,
    failed: bool,
}

impl Steps<'_> {
    /// Runs a step; a failed step has changed nothing.
    fn run<T: Default>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> Result<T> {
        self.run_partly(name, || Ok((work(), None)))
    }

    /// Runs a step that may fail for some rows only.
    fn run_partly<T: Default>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(T, Option<Error>)>,
    ) -> Result<T> {
        let (done, failed) = step::of_every_cycle(self.spi, self.now, name, work)?;
        self.failed |= failed;
        Ok(done.unwrap_or_default())
    }
}

/// Runs one cycle; returns `None` when another is under way. After a jump of the clock, attempts
/// and jobs end by its earlier time.
fn run(spi: &Spi, now: Timestamp, jump: Jump, reaper: &mut Reaper) -> Result<Option<Report>> {
    let Some(went_back) = watch_clock(spi, now) else {
        pgrx::debug1!("another cycle of trax is under way");
        return Ok(None);
    };
    let ended_by = jump.earlier(now);
    let mut steps = Steps {
        spi,
        now,
        failed: false,
    };
    let left = memory::left::take();
    if !left.is_empty() {
        steps.run("left_work", || repair::left(spi, &left))?;
    }
    let cancelled = steps.run("cancel_timed_out", || {
        reaper.look(ended_by, jump.later(now));
        lease::cancel_timed_out(spi, ended_by, reaper)
    })?;
    let reaped = steps.run_partly("reap_expired_leases", || {
        outcome::reap_expired_leases(spi, now, ended_by, reaper)
    })?;
    let of_wrong_clock = reaper.take_of_wrong_clock();
    steps.run("leases that lie too far ahead", || {
        clock_correction::correct_leases(spi, jump.later(now), of_wrong_clock);
    })?;
    let buried = steps.run("reap_dead_letters", || {
        dead_letter::written_for(spi, reaped.spent)
    })?;
    let everything = cleanup::checks_everything(now, jump, went_back);
    // Before any step takes rows out of the queue, which the repair would find missing.
    let missing = if everything { repair::run(spi, now) } else { 0 };
    let expired = steps.run("expire_queued", || {
        outcome::expire_queued(spi, now, ended_by)
    })?;
    cleanup::before_due(spi, now);
    let (queued, more_due) = steps.run("queue_due", || due::queue_due(spi, now))?;
    let needy = steps.run("jobs that waited for others", || graph::decide(spi, now))?;
    let promoted = steps.run("promote_delayed", || work_queue::promote_delayed(spi, now))?;
    let failed = steps.failed;
    // How a job ended is read when its event is taken.
    let keeps_runs = needy.more || needy.is_held || needy.reads_again;
    let cleaned = cleanup::clean_up(spi, now, jump, went_back, everything, keeps_runs);
    metrics::cycle(now);
    let mut steps = vec![
        ("cancel_timed_out", cancelled as i64),
        ("reap_expired_leases", reaped.count as i64),
        ("reap_dead_letters", (buried + missing) as i64),
        ("expire_queued", expired as i64),
        ("queue_due", queued as i64),
        ("promote_delayed", (promoted + needy.woken) as i64),
    ];
    // Cleaning up belongs to no particular cycle: it is reported when it did something.
    let cleaning = [
        ("make_partitions", cleaned.partitions_made),
        ("drop_partitions", cleaned.partitions_dropped),
        ("forget_dead_letters", cleaned.dead_letters),
    ];
    steps.extend(cleaning.into_iter().filter(|&(_, affected)| affected > 0));
    Ok(Some(Report {
        steps,
        failed,
        is_held: needy.is_held || needy.reads_again,
        more: more_due
            || needy.more
            || reaped.more
            || expired as i64 >= outcome::EXPIRE_AT_MOST
            || promoted as i64 >= work_queue::PROMOTE_AT_MOST,
    }))
}

/// Takes the lock of the cycle and records the clock under it; returns whether the clock went back,
/// and `None` when the lock is not free.
fn watch_clock(spi: &Spi, now: Timestamp) -> Option<bool> {
    Lock::Cycle.take_if_free(Mode::Alone).then(|| {
        step::isolated(spi, now, true, "clock", || believed_clock::record(spi)).unwrap_or(false)
    })
}

/// Does the scheduler's work when it wakes, inside a transaction; returns how long it may sleep. A
/// paused scheduler only watches the clock, and in a copy that was not adopted it does nothing.
pub(crate) fn run_for_scheduler(reaper: &mut Reaper) -> Result<Duration> {
    let interval = setting::tick_interval();
    spi::connected_anyhow(|spi| {
        prepared::look_for_ended();
        match instance::state(spi) {
            State::Running => {}
            State::Paused => {
                watch_clock(spi, Timestamp::now());
                return Ok(interval);
            }
            State::Foreign => return Ok(interval),
        }
        // No heartbeat gets through during a wait for the table: the wait lies before `now`, which
        // accounts for it.
        let leases = Table::open(Leased::TABLE, Leased::ALL);
        let now = Timestamp::now();
        leases.close();
        // An update locks this table first: from here on none can run.
        if !version::is_ours() {
            return Ok(interval);
        }
        let jump = believed_clock::jump(spi, now);
        reaper.begin(jump.earlier(now));
        let report = run(spi, now, jump, reaper)?;
        let next_look = report
            .as_ref()
            .and_then(|_| reaper.end(jump.earlier(Timestamp::now())));
        let interval = next_look.map_or(interval, |pause| pause.min(interval));
        match report {
            Some(report) if report.more => Ok(Duration::ZERO),
            Some(report) if report.failed => {
                let wait = until(work_queue::next_due(spi), now).min(interval);
                Ok(wait.max(FAILED_WAIT))
            }
            Some(report) if report.is_held || changes::has_left() => Ok(HELD_WAIT),
            Some(_) => Ok(until(work_queue::next_due(spi), now).min(interval)),
            None => Ok(interval),
        }
    })
}

/// Returns how long until something is due, after a cycle that handled everything due at
/// `looked_at`.
fn until(due: Option<Timestamp>, looked_at: Timestamp) -> Duration {
    due.map_or(Duration::MAX, |due| {
        if due <= looked_at {
            return HELD_WAIT;
        }
        let micros = due.0.saturating_sub(Timestamp::now().0).max(1_000);
        Duration::from_micros(micros as u64)
    })
}
