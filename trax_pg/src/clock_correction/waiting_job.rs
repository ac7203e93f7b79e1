//! Waiting jobs after the server's clock was ahead and is corrected: retries that would come too
//! late, and jobs that are ready too early.
//!
//! Enters: waiting jobs with an attempt that ended later than now by more than
//! [`TOLERANCE_MICROS`]. Leaves: those jobs, due after the delay that was decided then, counted
//! from now, and logged; once the clock has gone back, jobs that are ready before their time wait
//! for it, and those that were queued while the clock was ahead are due now. Holds: a delayed job
//! without such an attempt stays, however late it is due; a job that `release` has put off is such
//! a job.

use super::log;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp};
use crate::server::spi::{Spi, arg, statement};
use crate::{changes, wake};

statement!(
    RetriesAhead, "clock_correction/retries.sql", { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID }
);
statement!(
    ReadyTooEarly, "clock_correction/ready.sql", { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID }
);

/// Corrects retries that lie too far ahead.
pub(super) fn correct_retries(spi: &Spi, now: Timestamp) {
    let count = spi.execute(RetriesAhead {
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
    });
    log(count, "retries were due too far ahead and were corrected");
}

/// Corrects jobs that are ready too early.
pub(super) fn correct_ready(spi: &Spi, now: Timestamp) {
    changes::taken();
    wake::mark(wake::DUE);
    let count = spi.execute(ReadyTooEarly {
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
    });
    log(
        count,
        "waiting jobs were ready before their time and were corrected",
    );
}
