//! The background workers: a *launcher* for the server, a *scheduler* for each database,
//! *executors* of SQL jobs, and a *vacuum* now and then.
//!
//! This file has their common code: signals, waiting, and running a transaction. Between two
//! transactions a worker only waits on its latch, with no transaction and no snapshot open, and
//! answers every interrupt, so that it never holds back vacuum, DDL or a shutdown.

pub(crate) mod closed_database;
mod executor;
mod executors;
mod late_settings;
pub(crate) mod launcher;
mod notify_room;
mod own_session;
mod record;
mod run;
mod scheduler;
mod start;
mod vacuum;

use crate::server::latch;
use crate::server::wait_event::WaitEvent;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The name and the `backend_type` of the launcher.
const LAUNCHER: &str = "trax launcher";
/// The name and the `backend_type` of a scheduler.
const SCHEDULER: &str = "trax scheduler";
/// The name and the `backend_type` of an executor.
const EXECUTOR: &str = "trax executor";
/// The library that the postmaster loads to start a worker.
const LIBRARY: &str = "trax";

/// Whether this worker has received SIGTERM.
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Handles SIGTERM as the server itself does, which ends even a long statement at its next
/// interrupt check.
unsafe extern "C-unwind" fn on_sigterm(signal: i32) {
    TERMINATED.store(true, Ordering::Relaxed);
    // SAFETY: this is the handler of SIGTERM, with the server's argument for `die`.
    unsafe { pg_sys::die(signal) }
}

/// Handles SIGHUP as the server itself does.
unsafe extern "C-unwind" fn on_sighup(signal: i32) {
    // SAFETY: this is the handler of SIGHUP.
    unsafe { pg_sys::SignalHandlerForConfigReload(signal) }
}

/// Installs the handlers and begins to receive signals. Call it when a worker starts.
fn receive_signals() {
    // SAFETY: both handlers only set flags and the latch of this process.
    unsafe {
        install_handler(pg_sys::SIGHUP as i32, on_sighup);
        install_handler(pg_sys::SIGTERM as i32, on_sigterm);
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

unsafe fn install_handler(signal: i32, handler: unsafe extern "C-unwind" fn(i32)) {
    // SAFETY: passed on to the caller: the handler must be fit for a signal.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(signal, Some(handler));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal, Some(handler));
    }
}

/// Waits for the latch or the time, then answers interrupts and barriers.
fn wait(timeout: Duration) {
    latch::wait(timeout, WaitEvent::Idle);
    // No statement can be cancelled between two transactions, as in an idle session.
    // SAFETY: a flag that only this process and its signal handler write.
    unsafe { (&raw mut pg_sys::QueryCancelPending).write_volatile(0) };
    pgrx::check_for_interrupts!();
}

/// Reads the configuration file again if SIGHUP was received; returns whether it did.
fn reload_if_asked() -> bool {
    // SAFETY: a flag that only this process and its signal handler write.
    unsafe {
        let asked = &raw mut pg_sys::ConfigReloadPending;
        let reload = asked.read_volatile() != 0;
        if reload {
            asked.write_volatile(0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
        reload
    }
}

/// Runs `body` in a separate transaction, shown as `activity` meanwhile.
///
/// An error in `body` ends the process: the worker is restarted, with nothing half done.
fn in_transaction<T>(activity: &'static std::ffi::CStr, body: impl FnOnce() -> T) -> T {
    // SAFETY: called between transactions; the calls are those of any worker of the server.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        // Overrides the settings of a role.
        pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED as i32;
        pg_sys::XactReadOnly = false;
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, activity.as_ptr());
    }
    let result = body();
    // SAFETY: `body` returned, so the transaction and the snapshot from above are still current.
    unsafe {
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        pg_sys::pgstat_report_stat(true);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
    result
}
