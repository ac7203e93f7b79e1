//! What `pg_stat_activity.wait_event` shows of a process that sleeps in trax: a name of ours from
//! PostgreSQL 17 on, `Extension` before it. The DBA's page lists the names.

use pgrx::pg_sys;

/// What a process waits for.
#[derive(Clone, Copy)]
pub(crate) enum WaitEvent {
    /// A job that can be claimed.
    Work,
    /// The end of jobs.
    Job,
    /// A place of a token.
    Token,
    /// Something to do, in a background process.
    Idle,
    /// The start or the end of a scheduler.
    Scheduler,
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
impl WaitEvent {
    /// Returns what the server's functions that wait are told.
    pub(crate) fn number(self) -> u32 {
        pg_sys::PG_WAIT_EXTENSION
    }
}

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
impl WaitEvent {
    /// Returns what the server's functions that wait are told. The server numbers a name once for
    /// all its processes; this process remembers it.
    pub(crate) fn number(self) -> u32 {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBERS: [AtomicU32; 5] = [const { AtomicU32::new(0) }; 5];
        let (place, name) = match self {
            WaitEvent::Work => (0, c"TraxWaitForWork"),
            WaitEvent::Job => (1, c"TraxAwaitJob"),
            WaitEvent::Token => (2, c"TraxAwaitToken"),
            WaitEvent::Idle => (3, c"TraxIdle"),
            WaitEvent::Scheduler => (4, c"TraxScheduler"),
        };
        match NUMBERS[place].load(Ordering::Relaxed) {
            0 => {
                // SAFETY: a name that is short enough; the server copies it.
                let number = unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) };
                NUMBERS[place].store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }
}
