//! The `wait_event` in `pg_stat_activity` of a process that sleeps in trax: a name of the
//! extension's from PostgreSQL 17 on, `Extension` before it. The DBA's page lists the names.

use pgrx::pg_sys;

/// The event that a process waits for.
#[derive(Clone, Copy)]
pub(crate) enum WaitEvent {
    /// A job that can be claimed.
    Work,
    /// The end of jobs.
    Job,
    /// A slot of a token.
    Token,
    /// Work for a background process.
    Idle,
    /// The start or the end of a scheduler.
    Scheduler,
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
impl WaitEvent {
    /// Returns the wait event number for the server's wait functions.
    pub(crate) fn number(self) -> u32 {
        pg_sys::PG_WAIT_EXTENSION
    }
}

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
impl WaitEvent {
    /// Returns the wait event number for the server's wait functions. The server numbers a name
    /// once for all its processes; this process caches the number.
    pub(crate) fn number(self) -> u32 {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBERS: [AtomicU32; 5] = [const { AtomicU32::new(0) }; 5];
        let (index, name) = match self {
            WaitEvent::Work => (0, c"TraxWaitForWork"),
            WaitEvent::Job => (1, c"TraxAwaitJob"),
            WaitEvent::Token => (2, c"TraxAwaitToken"),
            WaitEvent::Idle => (3, c"TraxIdle"),
            WaitEvent::Scheduler => (4, c"TraxScheduler"),
        };
        match NUMBERS[index].load(Ordering::Relaxed) {
            0 => {
                // SAFETY: a name that is short enough; the server copies it.
                let number = unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) };
                NUMBERS[index].store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }
}
