//! Steps: parts of a cycle that fail by themselves.
//!
//! Enters: the name of a step and its work. Leaves: the result of the work, or its failure. Holds:
//! a step that fails rolls back only itself and stops no other. `trax.failed_step` has the error
//! until the step works again, for `trax.status()`, and it is logged once. A cancel and a shutdown
//! end the cycle.

use crate::error::{Error, Result};
use crate::server::clock::Timestamp;
use crate::server::foreign_code;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use std::cell::RefCell;
use std::collections::HashMap;

/// How long a failure of a step that every cycle runs is shown at least, and how often a backend
/// records that such a step works: the rows that failed may be put off meanwhile.
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

/// Runs a step so that its failure rolls back only its own changes; returns `None` when it failed.
/// If `clears`, a success clears the record of an earlier failure.
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

/// Calls [`isolated`] for a step of several parts, each of which fails by itself. The step has
/// failed if any of them has.
pub(crate) fn in_parts(spi: &Spi, now: Timestamp, step: &'static str, parts: &[&dyn Fn()]) {
    let mut failure = None;
    for part in parts {
        let done = spi::isolated(|| {
            part();
            Ok(())
        });
        failure = failure.or(done.err());
    }
    note(spi, now, step, failure.as_ref(), Some(now));
}

/// Calls [`isolated`] for a step of every cycle. Its work also returns an error beside its result
/// when it has failed for some rows only. The caller must retry after a serialization failure in a
/// transaction that keeps its snapshot, and the cycle ends when another role's code is attached.
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

/// Records a step's failure, or that it works and has not failed since a time.
fn note(
    spi: &Spi,
    now: Timestamp,
    step: &'static str,
    failure: Option<&Error>,
    works_since: Option<Timestamp>,
) {
    // Another role's code was just attached: the next cycle refuses to run and reports that, once.
    if failure.is_some() && foreign_code::refuse(spi).is_err() {
        return;
    }
    // The record itself may fail, for lack of space or a lock: that must not stop the other steps.
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
