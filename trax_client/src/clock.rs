//! A clock that advances while this machine is suspended, as the server's does. Leases and tokens
//! are measured by it.
//!
//! `Instant` and all timers stop during suspend. Code that waits for a moment therefore checks at
//! least once per [`CHECK_PERIOD`].

use std::ops::Add;
#[cfg(feature = "testkit")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The delay after resume within which an expiry that passed during suspend is noticed.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// A point on that clock, which is monotonic even if the time of day is set.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Moment(Duration);

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// On other platforms this clock includes suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// In tests, the simulated suspend time in milliseconds.
#[cfg(feature = "testkit")]
pub(crate) static SLEPT: AtomicU64 = AtomicU64::new(0);

#[cfg(feature = "testkit")]
fn slept() -> Duration {
    Duration::from_millis(SLEPT.load(Ordering::Relaxed))
}

#[cfg(not(feature = "testkit"))]
fn slept() -> Duration {
    Duration::ZERO
}

impl Moment {
    pub(crate) fn now() -> Self {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call writes to `time` only; the clock exists in every kernel that Rust
        // supports.
        unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Moment(Duration::new(seconds, nanos) + slept())
    }

    pub(crate) fn checked_add(self, length: Duration) -> Option<Self> {
        self.0.checked_add(length).map(Moment)
    }

    /// Returns the time from `now` until this moment; `None` if it has passed.
    pub(crate) fn after(self, now: Self) -> Option<Duration> {
        self.0.checked_sub(now.0).filter(|left| !left.is_zero())
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Moment(self.0.saturating_add(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_returns_what_is_left() {
        let begun = Moment::now();
        std::thread::sleep(Duration::from_millis(2));
        let now = Moment::now();
        assert!(now > begun && begun.after(now).is_none());
        assert_eq!((now + CHECK_PERIOD).after(now), Some(CHECK_PERIOD));
    }
}
