//! SQL entry points: starting the scheduler of this database, and the end of the install script.

use super::scheduler;
use crate::error::{Error, Result};
use crate::server::backend::my_database;
use crate::server::call::sql_function;
use crate::server::latch;
use crate::server::lock::Lock;
use crate::server::transaction;
use crate::server::version;
use crate::server::wait_event::WaitEvent;
use crate::{memory, setting};
use pgrx::prelude::*;
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// The delay after which the postmaster restarts a scheduler that was started by hand.
const RESTART: Duration = Duration::from_secs(5);
/// How long a caller waits to see the scheduler.
const START_LIMIT: Duration = Duration::from_secs(5);

sql_function!(
    trax_start_scheduler,
    pg_finfo_trax_start_scheduler,
    |call| { Ok(call.value(start_scheduler()?)) }
);

// The end of the install scripts of all versions: `create extension trax version '...'` calls it.
sql_function!(of any version trax_installed, pg_finfo_trax_installed, |call| {
    installed();
    Ok(call.null())
});

sql_function!(
    of any version trax_library_version,
    pg_finfo_trax_library_version,
    |call| { Ok(call.value(version::LIBRARY)) }
);

// The triggers of 0.1.0, without which its tables could not be restored. They do nothing, because
// this library does not use tables of another version.
sql_function!(
    of any version trax_changed_by_hand,
    pg_finfo_trax_changed_by_hand,
    |_call| { Ok(pg_sys::Datum::from(0)) }
);
sql_function!(
    of any version trax_deadline_changed_by_hand,
    pg_finfo_trax_deadline_changed_by_hand,
    |_call| { Ok(pg_sys::Datum::from(0)) }
);

/// Implements `trax.installed()`: makes the launcher look at this database again when this
/// transaction commits.
fn installed() {
    if memory::available() {
        transaction::after_commit(|| memory::poke(my_database()));
    }
}

/// Implements `trax.start_scheduler()`: asks the launcher, or without one the postmaster.
fn start_scheduler() -> Result<&'static str> {
    if Lock::Scheduler.is_taken() {
        return Ok("already running");
    }
    refuse_if_it_could_not_run()?;
    if memory::available() {
        memory::poke(my_database());
    } else {
        let worker = scheduler::registration(my_database()).set_restart_time(Some(RESTART));
        worker
            .load_dynamic()
            .map_err(|_| no_worker("All background worker slots are in use."))?;
    }
    let deadline = Instant::now() + START_LIMIT;
    while Instant::now() < deadline {
        latch::sleep(Duration::from_millis(10), WaitEvent::Scheduler);
        if Lock::Scheduler.is_taken() {
            return Ok("started");
        }
    }
    Err(no_worker(
        "The start was requested, but no process started; see the server log for the reason.",
    ))
}

fn refuse_if_it_could_not_run() -> Result<()> {
    // SAFETY: no arguments; a syscache lookup that returns null or a string.
    let (in_recovery, name) = unsafe {
        let name = pg_sys::get_database_name(my_database());
        let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        (pg_sys::RecoveryInProgress(), name.unwrap_or_default())
    };
    if in_recovery {
        return Err(
            Error::wrong_state("the scheduler does not run during recovery")
                .detail("This server is a standby.")
                .hint(
                    "Call this on the primary. A preloaded library starts schedulers at promotion.",
                ),
        );
    }
    if memory::available() && !setting::databases().contain(&name) {
        return Err(Error::wrong_state(format!(
            "trax.databases does not name database \"{name}\""
        ))
        .detail("The launcher runs schedulers only in the databases that the setting names.")
        .hint("Add it: alter system set trax.databases = '...'; select pg_reload_conf();"));
    }
    Ok(())
}

fn no_worker(detail: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        "the scheduler could not be started",
    )
    .detail(detail)
    .hint("Raise max_worker_processes and restart the server, or check trax.enabled.")
}
