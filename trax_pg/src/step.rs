//! Steps: parts of a cycle that fail by themselves.
//!
//! Enters: the name of a step and its work. Leaves: what it did, or its failure. Holds: a step that
//! fails undoes only itself and stops no other: `trax.failed_step` has its words until it works
//! again, for `trax.status()`, and the log has them once. A cancel and a shutdown end the cycle.

use crate::error::{Error, Result};
use crate::server::clock::Timestamp;
use crate::server::foreign_code;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use std::cell::RefCell;
use std::collections::HashMap;

/// How long a failure of a step that every cycle runs is shown at least, and how often a backend
/// records that such a step works: what failed may be put off meanwhile.
const SHOWN_MICROS: i64 = 30 * 1_000_000;

statement!(
    StepFailed, "step/failed.sql",
    { step: TEXTOID, error: TEXTOID, now: TIMESTAMPTZOID }
);
statement!(
    StepWorks, "step/works.sql",
    { step: TEXTOID, failed_before: TIMESTAMPTZOID, now: TIMESTAMPTZOID }
);

thread_local! {
    /// When this backend last recorded that a step works.
    static RECORDED: RefCell<HashMap<&'static str, Timestamp>> = RefCell::default();
}

/// Runs a step so that its failure undoes only its own changes; `None` when it failed. A
/// success clears what was noted of an earlier failure if it `clears`.
pub(crate) fn isolated<T>(
    spi: &Spi,
    now: Timestamp,
    clears: bool,
    step: &'static str,
    work: impl FnOnce() -> Result<T>,
) -> Option<T> {
    let done = spi::isolated(work);
    note(spi, now, step, done.as_ref().err(), clears.then_some(now));
    done.ok()
}

/// Runs a step of every cycle in the same way. Its work returns an error beside its result when it
/// has failed for some rows only. A conflict in a transaction that keeps its snapshot is the
/// caller's to repeat, and beside code of others no cycle goes on.
pub(crate) fn of_every_cycle<T>(
    spi: &Spi,
    now: Timestamp,
    step: &'static str,
    work: impl FnOnce() -> Result<(T, Option<Error>)>,
) -> Result<(Option<T>, bool)> {
    let (done, failure) = match spi::isolated(work) {
        Ok((done, failure)) => (Some(done), failure),
        Err(error) if spi::keeps_snapshot() && error.is_conflict() => return Err(error),
        Err(error) if foreign_code::refuse(spi).is_err() => return Err(error),
        Err(error) => (None, Some(error)),
    };
    let clears = failure.is_none() && is_to_record(step, now);
    let shown_until = now.plus(-SHOWN_MICROS);
    note(
        spi,
        now,
        step,
        failure.as_ref(),
        clears.then_some(shown_until),
    );
    Ok((done, failure.is_some()))
}

fn is_to_record(step: &'static str, now: Timestamp) -> bool {
    RECORDED.with_borrow_mut(|recorded| {
        let is_fresh = |at: &Timestamp| *at <= now && now < at.plus(SHOWN_MICROS);
        if recorded.get(step).is_some_and(is_fresh) {
            return false;
        }
        recorded.insert(step, now);
        true
    })
}

/// Notes how a step went: that it failed, or that it works and has not failed since a time.
fn note(
    spi: &Spi,
    now: Timestamp,
    step: &'static str,
    failure: Option<&Error>,
    works_since: Option<Timestamp>,
) {
    // Somebody has just attached code of others: the next cycle refuses and says so, once.
    if failure.is_some() && foreign_code::refuse(spi).is_err() {
        return;
    }
    // The record itself may fail, for want of room or of a lock: that is no reason to stop either.
    let noted = match (failure, works_since) {
        (Some(error), _) => spi::isolated(|| {
            let failed = StepFailed {
                step: arg(step),
                error: arg(error.message()),
                now: arg(now),
            };
            if spi.execute(failed) > 0 {
                log_failure(step, error);
            }
            Ok(())
        }),
        (None, Some(failed_before)) => spi::isolated(|| {
            spi.execute(StepWorks {
                step: arg(step),
                failed_before: arg(failed_before),
                now: arg(now),
            });
            Ok(())
        }),
        (None, None) => Ok(()),
    };
    if noted.is_err()
        && let Some(error) = failure
    {
        log_failure(step, error);
    }
}

fn log_failure(step: &str, error: &Error) {
    let message = error.message();
    pgrx::warning!("trax: a step of the cycle failed ({step}): {message}");
}
