//! Retries that were decided while the server's clock was ahead, and would come too late since it
//! was corrected.
//!
//! Enters: waiting jobs with an attempt that ended later than now by more than
//! [`TOLERANCE_MICROS`]. Leaves: those, due after the delay that was decided then, counted from
//! now, and logged. Holds: a job without such an attempt stays, however late it is due; what
//! `release` has put off is one.

use crate::server::clock::{TOLERANCE_MICROS, Timestamp};
use crate::server::spi::{Spi, arg, statement};

statement!(
    PutBackRetries, "outcome/put_back_retries.sql", { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID }
);

/// Puts right what lies too far ahead.
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
