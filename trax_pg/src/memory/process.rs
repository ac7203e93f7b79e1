//! Processes of this server: checks whether they run, wakes them, and sends them signals.

use pgrx::pg_sys;

/// Returns true for every process: unit tests have no server.
#[cfg(test)]
pub(crate) fn is_connected(pid: i32) -> bool {
    pid != 0
}

/// Returns whether a process is connected to this server.
#[cfg(not(test))]
pub(crate) fn is_connected(pid: i32) -> bool {
    // SAFETY: takes any number; returns null or a process.
    unsafe { !pg_sys::BackendPidGetProc(pid).is_null() }
}

/// Wakes a process, if it runs.
pub(super) fn wake(pid: i32) {
    // SAFETY: BackendPidGetProc returns null or a slot of the process array, which is never freed;
    // if another process has taken over the latch, that process wakes once for nothing.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid);
        if !process.is_null() {
            pg_sys::SetLatch(&raw mut (*process).procLatch);
        }
    }
}

pub(super) fn send_sigterm(pid: i32) {
    send_signal(pid, pg_sys::SIGTERM as i32);
}

pub(super) fn send_signal(pid: i32, signal: i32) {
    unsafe extern "C" {
        fn kill(pid: i32, signal: i32) -> i32;
    }
    // SAFETY: kill(2) on a process of this server; it fails only if the process has ended.
    unsafe { kill(pid, signal) };
}
