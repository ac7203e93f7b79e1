//! Leases that were granted or extended while the server's clock was ahead, and would last too long
//! since it was corrected.
//!
//! Enters: leases whose next look by the reaper is more than an hour away; all when the clock has
//! gone back. Leaves: those that were extended later than now by more than their own length and
//! [`TOLERANCE_MICROS`], put back to one length from now, and logged. Holds: a lease in an
//! *allowance* (`lease/overdue.rs`) is left alone: its `extended_at` is ahead by less than its
//! length. A heartbeat leaves leases of a wrong clock unchanged, because it may not set `reap_at`.

use super::log;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp, micros};
use crate::server::spi::{Spi, arg, statement};
use crate::setting;
use pgrx::datum::Interval;

/// The most leases that one sweep checks, those that last longest first.
const LOOK_AT_MOST: i64 = 1000;

statement!(
    LeasesAhead, "clock_correction/leases.sql",
    {
        now: TIMESTAMPTZOID,
        latest: TIMESTAMPTZOID,
        after: TIMESTAMPTZOID,
        default_timeout: INTERVALOID,
        at_most: INT8OID,
    }
);
statement!(LeaseExtensionsAhead, "clock_correction/lease_extensions.sql", { latest: TIMESTAMPTZOID });

/// Corrects leases that last too long; `everything` checks all leases.
pub(super) fn correct(spi: &Spi, now: Timestamp, everything: bool) {
    let latest = now.plus(TOLERANCE_MICROS);
    spi.execute(LeaseExtensionsAhead {
        latest: arg(latest),
    });
    let default_timeout = Interval::new(0, 0, micros(setting::default_timeout()));
    // A heartbeat of a clock ahead has not set `reap_at`.
    let after = if everything {
        Timestamp(i64::MIN)
    } else {
        latest
    };
    let count = spi.execute(LeasesAhead {
        now: arg(now),
        latest: arg(latest),
        after: arg(after),
        default_timeout: arg(default_timeout.expect("a setting is a length of time")),
        at_most: arg(LOOK_AT_MOST).filter(|_| !everything),
    });
    log(
        count,
        "leases expired later than their length allows and were corrected",
    );
}
