//! Time: the server's clock, read once at each SQL entry point and passed down from there.

use crate::error::{Error, Result};
use pgrx::datum::{FromDatum, Interval, IntoDatum};
use pgrx::{direct_function_call, pg_sys};
use std::time::Duration;

/// Microseconds from the Unix epoch to the epoch of `timestamptz` (2000-01-01 UTC).
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;
/// The clock may be wrong by this much without harm: one hour.
pub(crate) const TOLERANCE_MICROS: i64 = 60 * 60 * 1_000_000;
pub(crate) const MICROS_PER_DAY: i64 = 86_400_000_000;

/// An instant as `timestamptz` stores it: microseconds since 2000-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) i64);

impl Timestamp {
    pub(crate) const UNIX_EPOCH: Self = Self(-POSTGRES_EPOCH_MICROS);

    /// Returns the current time of the server's clock, not the start of the transaction: a lease
    /// granted late in a long transaction must not expire before it begins.
    pub(crate) fn now() -> Self {
        // SAFETY: reads the system clock.
        Self(unsafe { pg_sys::GetCurrentTimestamp() })
    }

    pub(crate) fn from_unix_micros(micros: i64) -> Self {
        Self(micros.saturating_sub(POSTGRES_EPOCH_MICROS))
    }

    pub(crate) fn unix_micros(self) -> i64 {
        self.0.saturating_add(POSTGRES_EPOCH_MICROS)
    }

    pub(crate) fn plus(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// The end of the times that callers may specify: 200000-01-01 UTC. The longest variance, wait
    /// or interval after an earlier time is within PostgreSQL's range, which ends in 294276.
    const END: Self = Self(72_318_015 * MICROS_PER_DAY);

    /// Returns the time, or an error if it is infinite or after all that callers may specify.
    /// `what` is the argument or member, as in `argument "run_at"`.
    pub(crate) fn bounded(self, what: &str, example: &str) -> Result<Self> {
        if self.0 != i64::MIN && self < Self::END {
            return Ok(self);
        }
        Err(Error::invalid(format!(
            "{what} must be a finite time before the year 200000"
        ))
        .detail("It is infinity, -infinity or a later time.")
        .hint(format!("Specify a time, for example: {example}")))
    }

    /// Returns false for `infinity` and `-infinity`.
    pub(crate) fn is_finite(self) -> bool {
        self.0 != i64::MAX && self.0 != i64::MIN
    }

    /// Returns the whole days since 1970-01-01, in UTC.
    pub(crate) fn unix_day(self) -> i64 {
        self.unix_micros().div_euclid(MICROS_PER_DAY)
    }
}

impl IntoDatum for Timestamp {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        Some(pg_sys::Datum::from(self.0))
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TIMESTAMPTZOID
    }
}

impl FromDatum for Timestamp {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _typoid: pg_sys::Oid,
    ) -> Option<Self> {
        (!is_null).then(|| Self(datum.value() as i64))
    }
}

/// The readings of two clocks of the machine at one moment: one that can be set, and one that
/// cannot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) shown: Timestamp,
    /// How long the machine has run, in microseconds, its sleep included.
    pub(crate) uptime: i64,
}

impl Reading {
    /// Returns the readings at a time that was read just before.
    pub(crate) fn of(shown: Timestamp) -> Self {
        Self {
            shown,
            uptime: uptime(),
        }
    }

    /// Reads both clocks, and again when this process had to wait in between.
    pub(crate) fn now() -> Self {
        let mut before = uptime();
        for _ in 0..READ_AT_MOST {
            let shown = Timestamp::now();
            let uptime = uptime();
            if uptime.saturating_sub(before) <= AT_ONCE_MICROS {
                return Self { shown, uptime };
            }
            before = uptime;
        }
        Self {
            shown: Timestamp::now(),
            uptime: before,
        }
    }
}

/// Two readings this close are one moment, and the number of tries.
const AT_ONCE_MICROS: i64 = 50_000;
const READ_AT_MOST: usize = 5;

/// Returns how long the machine has run, in microseconds.
fn uptime() -> i64 {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists, and is written to a place of its type.
    unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// Returns an identifier of this start of the machine, from which its uptime counts; if the kernel
/// has none, one of this start of the server.
pub(crate) fn boot() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // SAFETY: a plain number of the server.
    let server = unsafe { pg_sys::PgStartTime };
    name.map_or_else(|_| server.to_string(), |name| name.trim().to_owned())
}

/// Returns whether the months of an interval and the rest of it have different signs. A day has 24
/// hours, a month no fixed length.
pub(crate) fn has_mixed_signs(interval: &Interval) -> bool {
    let rest = i64::from(interval.days()).saturating_mul(MICROS_PER_DAY);
    i64::from(interval.months()) * rest.saturating_add(interval.micros()).signum() < 0
}

/// Returns the length of an interval in microseconds, a month as 30 days and a day as 24 hours;
/// saturates.
pub(crate) fn interval_micros(interval: &Interval) -> i64 {
    let days = i64::from(interval.months()) * 30 + i64::from(interval.days());
    days.saturating_mul(MICROS_PER_DAY)
        .saturating_add(interval.micros())
}

/// Returns a duration in microseconds; saturates.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Returns an interval of `micros` microseconds.
pub(crate) fn interval(micros: i64) -> Result<Interval> {
    Interval::new(0, 0, micros)
        .map_err(|_| Error::invalid(format!("{micros} microseconds is too long an interval")))
}

/// Returns the time an interval later, as `timestamptz + interval` does.
pub(crate) fn later(time: Timestamp, length: Option<pg_sys::Datum>) -> Timestamp {
    // SAFETY: the function is strict and takes these types; both values exist.
    let sum = unsafe {
        direct_function_call::<Timestamp>(
            pg_sys::timestamptz_pl_interval,
            &[time.into_datum(), length],
        )
    };
    sum.expect("the sum of two values")
}
