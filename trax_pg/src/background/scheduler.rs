//! The scheduler of one database: calls the manager cycle whenever something may be due.
//!
//! Starts for a database that the launcher (or `trax.start_scheduler()`) chose. Ends when the
//! extension is dropped, when the database's settings change (a new process reads them), on
//! SIGTERM, or on any error. Its starter starts it again where that makes sense.

use super::executors::Executors;
use super::notify_room::NotifyRoom;
use super::own_session::isolate_session;
use super::vacuum::Vacuums;
use super::{
    LIBRARY, SCHEDULER, TERMINATED, in_transaction, late_settings, receive_signals,
    reload_if_asked, wait,
};
use crate::lease::Reaper;
use crate::memory;
use crate::memory::Exit;
use crate::memory::worker_slot;
use crate::server::backend::my_pid;
use crate::server::clock::Timestamp;
use crate::server::lock::Lock;
use crate::server::spi;
use crate::server::spi::statement;
use crate::server::table::{LockedTable, lock_all};
use crate::server::version;
use crate::timing::zone;
use crate::{cycle, limit, prepared, setting, wake};
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

statement!(SettingsStored, "background/settings_stored.sql" -> Option<String>);

/// How often a scheduler checks its settings for changes, and, while it sleeps, its extension.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a scheduler waits for another scheduler of its database to end.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long a scheduler started by hand waits for `create extension` to commit.
const INSTALL_WAIT: Duration = Duration::from_secs(10);
/// The polling interval of both waits.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The least time between two requested cycles, and between two requested notifications: a
/// thousand commits a second wake the scheduler a hundred times.
const WAKE_SPACING: Duration = Duration::from_millis(10);
/// After a notification, the scheduler waits at least this many times as long as it took:
/// notifications use at most a fifth of one core.
const NOTICE_SHARE: u32 = 4;

/// The reason why this process is about to end, if known: see [`end`].
static EXIT: AtomicU8 = AtomicU8::new(UNANNOUNCED);
const UNANNOUNCED: u8 = 0;
const EXITS: [Exit; 5] = [
    Exit::NoExtension,
    Exit::Restart,
    Exit::Busy,
    Exit::Closed,
    Exit::Yielded,
];

/// Returns the registration with which the postmaster starts a scheduler for a database.
pub(super) fn registration(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new(SCHEDULER)
        .set_library(LIBRARY)
        .set_function("trax_scheduler_main")
        .set_argument(Some(pg_sys::Datum::from(database)))
        .enable_spi_access()
}

/// Runs the scheduler of the database whose oid is the argument: the entry point of its process.
#[pg_guard]
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn trax_scheduler_main(argument: pg_sys::Datum) {
    let database = pg_sys::Oid::from(argument.value() as u32);
    enter(database);
    receive_signals();
    // SAFETY: a worker that was registered with a database connection, connecting for the first
    // time.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    isolate_session();
    take_lock();
    let settings = Connected::begin();
    settings.serve()
}

/// Takes the slot of the database, and ensures that it is freed, before anything can fail.
fn enter(database: pg_sys::Oid) {
    if !memory::available() {
        end_with_database();
        return;
    }
    let argument = pg_sys::Datum::from(database);
    // Registered before the connection is, so it runs after that has left the process array.
    // SAFETY: the callback has the right signature and lives as long as the library.
    unsafe { pg_sys::on_shmem_exit(Some(leave), argument) };
    if !memory::enter(database, my_pid()) {
        end(Exit::Closed);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn leave(_code: i32, argument: pg_sys::Datum) {
    let exit = match EXIT.load(Ordering::Relaxed) {
        UNANNOUNCED if TERMINATED.load(Ordering::Relaxed) => Exit::Terminated,
        UNANNOUNCED => Exit::Failed,
        announced => EXITS[usize::from(announced) - 1],
    };
    // SAFETY: the process ends; an error may have left locks behind that nothing else would
    // release.
    unsafe { pg_sys::LWLockReleaseAll() };
    worker_slot::leave(my_pid());
    memory::leave(pg_sys::Oid::from(argument.value() as u32), my_pid(), exit);
}

/// Whether the server has reported that the database does not exist.
static NO_DATABASE: AtomicBool = AtomicBool::new(false);
static mut NEXT_LOG_HOOK: pg_sys::emit_log_hook_type = None;

/// Ends the process for good when it cannot connect because its database was dropped: without a
/// launcher, the postmaster would start it again and again.
fn end_with_database() {
    // SAFETY: a process with one thread, before anything can be logged that the hook looks for; the
    // callback has the right signature and lives as long as the library.
    unsafe {
        NEXT_LOG_HOOK = pg_sys::emit_log_hook;
        pg_sys::emit_log_hook = Some(look_for_no_database);
        pg_sys::on_shmem_exit(Some(end_for_good), pg_sys::Datum::from(0));
    }
}

// Without pgrx's guard: it runs inside an error report, and raises nothing itself.
unsafe extern "C-unwind" fn look_for_no_database(report: *mut pg_sys::ErrorData) {
    // SAFETY: the server passes a report that lives over the call; `end_with_database` has set the
    // next hook.
    unsafe {
        let fatal = (*report).elevel == PgLogLevel::FATAL as i32;
        let code = PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME as i32;
        if fatal && (*report).sqlerrcode == code {
            NO_DATABASE.store(true, Ordering::Relaxed);
        }
        if let Some(next) = NEXT_LOG_HOOK {
            next(report);
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_for_good(_code: i32, _argument: pg_sys::Datum) {
    if NO_DATABASE.load(Ordering::Relaxed) {
        // SAFETY: inside proc_exit, which continues with the callbacks that are left and this code.
        unsafe { pg_sys::proc_exit(0) };
    }
}

/// Ends the process for a reason that its starter needs.
///
/// The launcher reads the reason in shared memory. Without a launcher, exit code 1 makes the
/// postmaster start the worker again, and 0 unregisters it.
#[allow(
    unreachable_code,
    reason = "not every server version's bindings say that it never returns"
)]
fn end(exit: Exit) -> ! {
    let index = EXITS
        .iter()
        .position(|one| *one == exit)
        .expect("only announced exits end so");
    EXIT.store(index as u8 + 1, Ordering::Relaxed);
    if exit == Exit::NoExtension {
        Executors::end_all();
    }
    let code = i32::from(exit == Exit::Restart && !memory::available());
    // SAFETY: ends the process in the server's own way.
    unsafe { pg_sys::proc_exit(code) };
    unreachable!("proc_exit does not return")
}

/// Becomes the only scheduler of the database, or ends the process.
fn take_lock() {
    let deadline = Instant::now() + LOCK_WAIT;
    while !in_transaction(c"trax: start", || Lock::Scheduler.take_for_session()) {
        if Instant::now() >= deadline {
            end(Exit::Busy);
        }
        wait(LOOK_AGAIN);
    }
}

/// The work that is due in a pass.
struct Due {
    cycle: bool,
    check: bool,
    /// Work was added: listeners are notified.
    notice: bool,
    /// Workers are asked to stop: listeners are notified.
    cancel: bool,
    /// Executors may be needed, or may have ended.
    executors: bool,
}

impl Due {
    /// Notifies listeners, unless that could fail and roll back the cycle of the same transaction.
    /// Listeners poll if they are not notified.
    fn notify(&self, room: &mut NotifyRoom) {
        if (self.notice || self.cancel) && !room.is_there() {
            return;
        }
        if self.notice {
            wake::notify();
        }
        if self.cancel
            && let Some(bell) = memory::bell()
        {
            let job_ids = bell.take_cancelled();
            if job_ids.as_ref().is_none_or(|job_ids| !job_ids.is_empty()) {
                wake::notify_cancelled(job_ids.as_deref());
            }
        }
    }
}

/// The state that the scheduler read when it connected.
struct Connected {
    settings: String,
    /// When they were found unchanged.
    settings_read_at: Timestamp,
    compatible: bool,
    last_cycle: Instant,
    reaper: Reaper,
    vacuums: Vacuums,
    executors: Executors,
    /// A table lock that a pass did not wait for.
    locked: Option<LockedTable>,
    notify_room: NotifyRoom,
}

impl Connected {
    fn begin() -> Self {
        let deadline = Instant::now() + INSTALL_WAIT;
        loop {
            let settings_read_at = Timestamp::now();
            if let Some(settings) = in_transaction(c"trax: start", || {
                version::installed().map(|_| {
                    look_for_older_prepared();
                    let settings = stored_settings();
                    let role = pg_sys::BOOTSTRAP_SUPERUSERID.into();
                    if late_settings::any(role, isolate_session) {
                        end(Exit::Restart);
                    }
                    settings
                })
            }) {
                return Self {
                    settings,
                    settings_read_at,
                    compatible: true,
                    last_cycle: Instant::now(),
                    reaper: Reaper::of_scheduler(Timestamp::now()),
                    vacuums: Vacuums::default(),
                    executors: Executors::default(),
                    locked: None,
                    notify_room: NotifyRoom::default(),
                };
            }
            // The launcher is woken when `create extension` commits; a start by hand may come
            // earlier.
            if memory::available() || Instant::now() >= deadline {
                end(Exit::NoExtension);
            }
            wait(LOOK_AGAIN);
        }
    }

    /// Runs the loop: a check, a cycle and a notification when due, and sleep in between.
    fn serve(mut self) -> ! {
        if let Some(bell) = memory::bell() {
            bell.set_scheduler();
        }
        memory::rate::begin();
        let mut next_cycle = Instant::now();
        let mut next_check = next_cycle;
        let mut next_notice = next_cycle;
        let mut next_cancel = next_cycle;
        let mut next_executors = next_cycle;
        let mut noticed = next_cycle;
        let mut has_cycled = true;
        let mut is_due_soon = false;
        let mut rung = 0;
        let mut heard = 0;
        loop {
            if reload_if_asked() {
                next_cycle = Instant::now();
            }
            limit::database::publish_limit(self.settings_read_at);
            let opens_in = ring_openings();
            rung |= memory::bell().map_or(0, memory::Bell::take);
            let count = wake::rings();
            // A single ring is passed on at once; several rings are combined.
            if count.wrapping_sub(heard) > 1 {
                next_notice = next_notice.max(noticed + WAKE_SPACING);
            }
            let now = Instant::now();
            if rung & wake::DUE != 0 {
                next_cycle = next_cycle.min(self.last_cycle + WAKE_SPACING);
            }
            let mut due = Due {
                cycle: now >= next_cycle,
                check: now >= next_check,
                notice: rung & wake::WORK != 0 && now >= next_notice,
                cancel: rung & wake::CANCELLED != 0 && now >= next_cancel,
                executors: rung & wake::SQL != 0 && now >= next_executors,
            };
            if self.compatible && (due.notice || due.cancel) {
                // Listeners do not wait for a cycle: it follows at once.
                due.cycle = false;
                due.check = false;
            }
            due.executors |= due.check || due.cancel;
            let concerns_sql = has_cycled || self.executors.were_needed();
            if due.notice && !due.executors && concerns_sql {
                // Mostly work of other roles, whose workers need the processor now.
                rung |= wake::SQL;
                next_executors = next_executors.max(now + WAKE_SPACING);
            }
            if due.cycle || due.check || due.notice || due.cancel {
                let sleep = in_transaction(c"trax: cycle", || self.pass(&due));
                if let Some(locked) = self.locked.take() {
                    in_transaction(c"trax: waiting for a table", || locked.wait());
                    continue;
                }
                let end = Instant::now();
                if due.check {
                    next_check = end + CHECK_INTERVAL;
                }
                if due.notice {
                    rung &= !wake::WORK;
                    heard = count;
                    noticed = end;
                    has_cycled = false;
                    // The first of a scheduler is part of a cycle.
                    let alone = !due.cycle && !due.check;
                    let pause = alone.then(|| now.elapsed() * NOTICE_SHARE);
                    next_notice = end + pause.unwrap_or(WAKE_SPACING);
                }
                if due.cancel {
                    rung &= !wake::CANCELLED;
                    next_cancel = end + WAKE_SPACING;
                }
                if let Some(sleep) = sleep {
                    rung &= !wake::DUE;
                    self.last_cycle = end;
                    next_cycle = end + sleep;
                    is_due_soon = sleep < setting::tick_interval();
                    has_cycled = true;
                }
            }
            if due.executors {
                // Separately, so that no notification waits for it or for a multiple of its time.
                let again = (self.compatible && setting::enabled())
                    .then(|| in_transaction(c"trax: executors", || self.executors.look()))
                    .flatten();
                rung = rung & !wake::SQL | again.map_or(0, |_| wake::SQL);
                next_executors = Instant::now() + again.unwrap_or(WAKE_SPACING);
            }
            let mut until = next_cycle.min(next_check);
            if let Some(opens_in) = opens_in {
                until = until.min(now + opens_in);
            }
            if rung & wake::WORK != 0 {
                until = until.min(next_notice);
            }
            if rung & wake::CANCELLED != 0 {
                until = until.min(next_cancel);
            }
            if rung & wake::SQL != 0 {
                until = until.min(next_executors);
            }
            // Waiting for a lock consumes a latch that a ring set meanwhile, and a later ring does
            // not set it again.
            if memory::bell().is_some_and(memory::Bell::has_rung) {
                until = Instant::now();
            }
            if memory::available() && worker_slot::yields() {
                yield_slot(if is_due_soon { rung | wake::DUE } else { rung });
            }
            wait(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Runs one transaction; returns the time to the next cycle if it ran one.
    fn pass(&mut self, due: &Due) -> Option<Duration> {
        if !due.cycle && !due.check {
            // Listeners wait for this: the result of the last check still holds.
            if self.compatible && setting::enabled() {
                due.notify(&mut self.notify_room);
            }
            return None;
        }
        let Some(version) = version::installed() else {
            log!("{SCHEDULER}: the extension was dropped, exiting");
            end(Exit::NoExtension);
        };
        if due.check {
            let read_at = Timestamp::now();
            if stored_settings() != self.settings {
                log!("{SCHEDULER}: the settings of this database changed, reconnecting");
                end(Exit::Restart);
            }
            self.settings_read_at = read_at;
        }
        if due.check && zone::is_stale() {
            log!("{SCHEDULER}: the time zone data was updated, reconnecting");
            end(Exit::Restart);
        }
        let idle = Some(setting::tick_interval());
        if !self.is_compatible(&version) || !setting::enabled() {
            return idle;
        }
        if let Err(locked) = lock_all() {
            self.locked = Some(locked);
            return None;
        }
        due.notify(&mut self.notify_room);
        if due.check {
            let looked = spi::connected_anyhow(|spi| {
                self.vacuums.consider(spi);
                Ok(())
            });
            looked.unwrap_or_else(|error| error.raise());
        }
        due.cycle.then(|| {
            let ran = cycle::run_for_scheduler(&mut self.reaper);
            ran.unwrap_or_else(|error| error.raise())
        })
    }

    /// Returns whether the installed SQL matches this library; logs once if it does not.
    fn is_compatible(&mut self, version: &str) -> bool {
        let was = std::mem::replace(&mut self.compatible, version == version::LIBRARY);
        if was && !self.compatible {
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "the trax scheduler waits: it is version {}, the extension is version {version}",
                    version::LIBRARY
                ),
                function_name!(),
            )
            .set_hint("Run: alter extension trax update; if the library is the older one, restart the server.")
            .report(PgLogLevel::WARNING);
        }
        self.compatible
    }
}

/// Rings for work if a rate has room by now; returns how long until the next has.
fn ring_openings() -> Option<Duration> {
    let now = Timestamp::now();
    let opens_at = memory::bell()?.next_opening(now.0)?;
    if opens_at <= now.0 {
        wake::ring(wake::WORK);
        return None;
    }
    Some(Duration::from_micros((opens_at - now.0).unsigned_abs()))
}

fn look_for_older_prepared() {
    let looked = spi::connected_anyhow(|spi| {
        prepared::look_for_older(spi);
        Ok(())
    });
    looked.unwrap_or_else(|error| error.raise());
}

/// Ends this process for another one that waits for a worker slot. The rings it has consumed are
/// rung again, so that it soon returns.
fn yield_slot(rung: u32) -> ! {
    if rung != 0 {
        wake::ring(rung);
    }
    end(Exit::Yielded)
}

/// Returns the settings that `alter database` and `alter role` have stored for this process, as one
/// text for comparison.
fn stored_settings() -> String {
    let text = spi::connected_anyhow(|spi| Ok(spi.query(SettingsStored).first().flatten()));
    text.unwrap_or_else(|error| error.raise())
        .unwrap_or_default()
}
