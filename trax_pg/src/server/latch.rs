//! Waiting on this process's own latch.

use super::backend::client_socket;
use super::wait_event::WaitEvent;
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// Waits until the latch is set, at most for `timeout`; the caller must handle interrupts.
pub(crate) fn wait(timeout: Duration, event: WaitEvent) {
    wait_for(timeout, event, None);
}

/// Also waits until the client has sent something or is gone; returns whether it has.
pub(crate) fn wait_or_client(timeout: Duration, event: WaitEvent) -> bool {
    wait_for(timeout, event, client_socket())
}

fn wait_for(timeout: Duration, event: WaitEvent, socket: Option<pg_sys::pgsocket>) -> bool {
    let mut wake = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    if socket.is_some() {
        wake |= pg_sys::WL_SOCKET_READABLE;
    }
    // Rounded up, so that a wait never ends just before the time it waits for.
    let millis = timeout.as_micros().div_ceil(1_000).min(i32::MAX as u128);
    // SAFETY: MyLatch is the latch of this process; without its event the socket is not used.
    let events = unsafe {
        let events = pg_sys::WaitLatchOrSocket(
            pg_sys::MyLatch,
            wake as i32,
            socket.unwrap_or(pg_sys::PGINVALID_SOCKET),
            millis as i64,
            event.number(),
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
        events
    };
    events as u32 & pg_sys::WL_SOCKET_READABLE != 0
}

/// Waits for the whole timeout, even if the latch is set meanwhile. An interrupt ends it with an
/// error.
pub(crate) fn sleep(timeout: Duration, event: WaitEvent) {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        wait(left, event);
        pgrx::check_for_interrupts!();
    }
}
