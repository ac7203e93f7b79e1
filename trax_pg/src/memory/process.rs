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

/// Returns whether a client other than this process is connected to a database.
pub(crate) fn has_clients(database: pg_sys::Oid) -> bool {
    // SAFETY: the slots of all processes are in shared memory and are never freed. A slot that
    // changes meanwhile is seen as it was, or as it becomes.
    unsafe {
        let all = &*pg_sys::ProcGlobal;
        let slots = std::slice::from_raw_parts(all.allProcs, all.allProcCount as usize);
        slots.iter().any(|slot| {
            slot.pid != 0
                && slot.databaseId == database
                && is_of_client(slot)
                && !std::ptr::eq(slot, pg_sys::MyProc)
                // A slot keeps the id of its last process.
                && std::ptr::eq(slot, pg_sys::BackendPidGetProc(slot.pid))
        })
    }
}

fn is_of_client(slot: &pg_sys::PGPROC) -> bool {
    #[cfg(feature = "pg18")]
    return slot.isRegularBackend;
    #[cfg(not(feature = "pg18"))]
    return !slot.isBackgroundWorker
        && u32::from(slot.statusFlags) & pg_sys::PROC_IS_AUTOVACUUM == 0;
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
