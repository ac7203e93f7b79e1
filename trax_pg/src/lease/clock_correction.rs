//! Leases that were granted or extended while the server's clock was ahead, and would last too long
//! since it was corrected.
//!
//! Enters: leases whose next look by the reaper is more than an hour away; all when the clock has
//! gone back. Leaves: those that were extended later than now by more than their own length and
//! [`TOLERANCE_MICROS`], put back to one length from now, and logged. Holds: a lease in a *grace*
//! period is left alone: its `extended_at` is ahead by less than its length. A heartbeat leaves
//! leases of a wrong clock unchanged, because it may not set `reap_at`.

use crate::server::clock::{TOLERANCE_MICROS, Timestamp, micros};
use crate::server::spi::{Spi, arg, statement};
use crate::setting;
use pgrx::datum::Interval;

/// The most leases that one sweep checks, those that last longest first.
const LOOK_AT_MOST: i64 = 1000;

statement!(
    LeasePutBack, "lease/put_back.sql",
    {
        now: TIMESTAMPTZOID,
        latest: TIMESTAMPTZOID,
        after: TIMESTAMPTZOID,
        default_timeout: INTERVALOID,
        at_most: INT8OID,
    }
);
statement!(LeaseExtensionPutBack, "lease/extension_put_back.sql", { latest: TIMESTAMPTZOID });

/// Returns whether a clock that was ahead has extended a lease.
pub(super) fn is_of_wrong_clock(
    extended_at: Timestamp,
    expires_at: Timestamp,
    now: Timestamp,
) -> bool {
    let ahead = extended_at.0.saturating_sub(now.plus(TOLERANCE_MICROS).0);
    ahead > 0 && ahead > expires_at.0.saturating_sub(extended_at.0)
}

/// Corrects leases that last too long; `everything` checks all leases.
pub(crate) fn put_back(spi: &Spi, now: Timestamp, everything: bool) {
    let latest = now.plus(TOLERANCE_MICROS);
    spi.execute(LeaseExtensionPutBack {
        latest: arg(latest),
    });
    let default_timeout = Interval::new(0, 0, micros(setting::default_timeout()));
    // A heartbeat of a clock ahead has not set `reap_at`.
    let after = if everything {
        Timestamp(i64::MIN)
    } else {
        latest
    };
    let count = spi.execute(LeasePutBack {
        now: arg(now),
        latest: arg(latest),
        after: arg(after),
        default_timeout: arg(default_timeout.expect("a setting is a length of time")),
        at_most: arg(LOOK_AT_MOST).filter(|_| !everything),
    });
    if count > 0 {
        pgrx::warning!(
            "trax: {count} leases lay further ahead than their length allows and were put back; the clock of this server may have been wrong"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{TOLERANCE_MICROS, Timestamp, is_of_wrong_clock};

    #[test]
    fn a_lease_is_ahead_that_neither_its_length_nor_the_tolerance_explains() {
        let hour = TOLERANCE_MICROS;
        let ahead = |extended_at, expires_at| {
            is_of_wrong_clock(Timestamp(extended_at), Timestamp(expires_at), Timestamp(0))
        };
        assert!(!ahead(-hour, 5 * hour));
        assert!(!ahead(hour, hour + 30));
        assert!(ahead(hour + 31, hour + 61));
        assert!(!ahead(12 * hour, 24 * hour), "a grace of a day's lease");
        assert!(ahead(400 * hour, 424 * hour));
    }
}
