//! Waiting on this process's own latch.

use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// Waits until the latch is set, at most for `timeout`; interrupts are the caller's to answer.
pub(crate) fn wait(timeout: Duration) {
    let wake = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // Rounded up, so that a wait never ends just before the time it waits for.
    let millis = timeout.as_micros().div_ceil(1_000).min(i32::MAX as u128);
    // SAFETY: MyLatch is the latch of this process.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            wake as i32,
            millis as i64,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// Waits for as long, whatever sets the latch meanwhile. An interrupt ends it with an error.
pub(crate) fn sleep(timeout: Duration) {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        wait(left);
        pgrx::check_for_interrupts!();
    }
}
