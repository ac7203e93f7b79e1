//! Waiting jobs after the server's clock was ahead and is corrected: retries that would come too
//! late, and jobs that are ready too early.
//!
//! Enters: waiting jobs with an attempt that ended later than now by more than
//! [`TOLERANCE_MICROS`]. Leaves: those jobs, due after the delay that was decided then, counted
//! from now, and logged; once the clock has gone back, jobs that are ready before their time wait
//! for it, and those that were queued while the clock was ahead are due now. Holds: a delayed job
//! without such an attempt stays, however late it is due; a job that `release` has put off is such
//! a job.

use crate::server::clock::{TOLERANCE_MICROS, Timestamp};
use crate::server::spi::{Spi, arg, statement};
use crate::{changes, wake};

statement!(
    PutBackRetries, "outcome/put_back_retries.sql", { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID }
);
statement!(
    PutBackReady, "outcome/put_back_ready.sql", { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID }
);

/// Corrects retries that lie too far ahead.
pub(crate) fn put_back_retries(spi: &Spi, now: Timestamp) {
    let count = spi.execute(PutBackRetries {
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
    });
    if count > 0 {
        pgrx::warning!(
            "trax: {count} retries lay too far ahead and were put back; the clock of this server may have been wrong"
        );
    }
}

/// Corrects jobs that are ready too early.
pub(crate) fn put_back_ready(spi: &Spi, now: Timestamp) {
    changes::taken();
    wake::mark(wake::DUE);
    let count = spi.execute(PutBackReady {
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
    });
    if count > 0 {
        pgrx::warning!(
            "trax: {count} waiting jobs were ready before their time and were put right; the clock of this server may have been wrong"
        );
    }
}
