//! Leases that were granted or extended while the server's clock was ahead, and would last too long
//! since it was corrected.
//!
//! Enters: leases that the reaper has found, extended later than now by more than their own length
//! and [`TOLERANCE_MICROS`]. Leaves: the same, put back to one length from now, and logged. Holds:
//! a lease in an *allowance* (`lease/overdue.rs`) is left alone: its `extended_at` is ahead by less
//! than its length. A heartbeat leaves leases of a wrong clock unchanged, because it never shortens
//! a lease.

use super::log;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp, micros};
use crate::server::spi::{Spi, arg, statement};
use crate::setting;
use pgrx::datum::Interval;

statement!(
    LeasesAhead, "clock_correction/leases.sql",
    {
        job_ids: INT8ARRAYOID,
        now: TIMESTAMPTZOID,
        latest: TIMESTAMPTZOID,
        default_timeout: INTERVALOID,
    }
);
statement!(LeaseExtensionsAhead, "clock_correction/lease_extensions.sql", { latest: TIMESTAMPTZOID });

/// Corrects the leases of jobs that last too long.
pub(crate) fn correct_leases(spi: &Spi, now: Timestamp, job_ids: Vec<i64>) {
    if job_ids.is_empty() {
        return;
    }
    let default_timeout = Interval::new(0, 0, micros(setting::default_timeout()));
    let count = spi.execute(LeasesAhead {
        job_ids: arg(job_ids),
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
        default_timeout: arg(default_timeout.expect("a setting is a length of time")),
    });
    log(
        count,
        "leases expired later than their length allows and were corrected",
    );
}

/// Deletes recorded heartbeats of a clock that was ahead.
pub(super) fn forget_extensions_ahead(spi: &Spi, now: Timestamp) {
    spi.execute(LeaseExtensionsAhead {
        latest: arg(now.plus(TOLERANCE_MICROS)),
    });
}
