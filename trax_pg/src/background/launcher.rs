//! The launcher: one scheduler for each database that has the extension.
//!
//! Each *pass* reads the list of databases, notes schedulers that ended, ends unwanted ones, and
//! starts missing ones. A database in which a scheduler found no extension *rests*: it is skipped
//! until it is poked. Outside shared memory the launcher keeps only the times of the next tries, so
//! a new launcher simply continues.

use super::{LAUNCHER, LIBRARY, in_transaction, receive_signals, reload_if_asked, scheduler, wait};
use crate::memory;
use crate::memory::worker_slot;
use crate::memory::worker_slot::Wanted;
use crate::memory::{Exit, Phase, Pokes, Reservation, Slot};
use crate::server::backend::my_pid;
use crate::setting;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashMap;
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// The delay after which the postmaster starts the launcher again.
const LAUNCHER_RESTART: Duration = Duration::from_secs(2);
/// The longest time between two passes, in case a wake-up is lost.
const POLL: Duration = Duration::from_secs(5);
/// The least time between two starts for the same database.
const START_SPACING: Duration = Duration::from_secs(1);
/// The delay after a scheduler failed.
const FAILURE_DELAY: Duration = Duration::from_secs(5);
/// A registered scheduler that has not started after this time never will.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long databases may wait for a worker slot before that is logged.
const STARVED_LIMIT: Duration = Duration::from_secs(10);

const NO_SLOT: &str = "All background worker slots are in use.";

/// Registers the launcher with the postmaster; for `_PG_init` while preloading.
pub(crate) fn register() {
    // SAFETY: a plain flag of the server.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    BackgroundWorkerBuilder::new(LAUNCHER)
        .set_library(LIBRARY)
        .set_function("trax_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(LAUNCHER_RESTART))
        .load();
}

/// Runs the launcher: the entry point of its process.
#[pg_guard]
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn trax_launcher_main(_argument: pg_sys::Datum) {
    receive_signals();
    // SAFETY: a worker that was registered with a connection, connecting for the first time;
    // without a database it can read the shared catalogs.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
    }
    memory::set_launcher(my_pid());
    let mut launcher = Launcher::default();
    loop {
        reload_if_asked();
        let pause = in_transaction(c"trax: looking for databases", || launcher.pass());
        wait(pause);
    }
}

/// The launcher's state of one database.
#[derive(Default)]
struct KnownDatabase {
    started_at: Option<Instant>,
    not_before: Option<Instant>,
    /// The database has no extension, as far as the launcher knows.
    resting: bool,
    /// Another look was requested while it had a scheduler.
    poked: bool,
    /// When its scheduler, which has yielded its worker slot, is to return.
    back_at: Option<Instant>,
}

impl KnownDatabase {
    /// Returns since when the database has waited for its scheduler: 0, which comes before all, if
    /// the scheduler was not asked to yield.
    fn waits_since(&self, now: Instant) -> pg_sys::TimestampTz {
        let waited = |at: Instant| now.saturating_duration_since(at).as_micros() as i64;
        self.back_at.map_or(0, |at| self::now() - waited(at))
    }
}

#[derive(Default)]
struct Launcher {
    known: HashMap<pg_sys::Oid, KnownDatabase>,
    /// Since when databases have waited for a worker slot, and whether that was logged.
    starved: Option<(Instant, bool)>,
    /// Whether the log reports that schedulers take turns.
    said_turns: bool,
    ages: Ages,
}

/// How long this launcher has known each scheduler, by a monotonic clock. The time in shared memory
/// only distinguishes one start from the next.
#[derive(Default)]
struct Ages(HashMap<u32, (pg_sys::TimestampTz, Instant)>);

impl Ages {
    fn of(&mut self, database: u32, launched_at: pg_sys::TimestampTz, now: Instant) -> Duration {
        let known = self.0.entry(database).or_insert((launched_at, now));
        if known.0 != launched_at {
            *known = (launched_at, now);
        }
        now.duration_since(known.1)
    }
}

struct Database {
    oid: pg_sys::Oid,
    name: String,
}

impl Launcher {
    /// Brings the schedulers in line with the databases; returns the time until the next pass.
    fn pass(&mut self) -> Duration {
        memory::forget_dropped();
        self.take_pokes();
        self.call_back();
        let mut databases = connectable_databases();
        self.known
            .retain(|oid, _| databases.iter().any(|one| one.oid == *oid));
        let allowed = setting::databases();
        databases.retain(|one| setting::enabled() && allowed.contain(&one.name));

        for slot in memory::slots() {
            let wanted = databases.iter().any(|one| one.oid == slot.database);
            self.check_slot(&slot, wanted);
        }
        self.start_missing(&databases);
        self.pause(&databases)
    }

    fn take_pokes(&mut self) {
        let awaken = |known: &mut KnownDatabase| {
            known.resting = false;
            known.poked = true;
            known.not_before = None;
            known.back_at = None;
        };
        match memory::take_pokes() {
            Pokes::All => self.known.values_mut().for_each(awaken),
            Pokes::These(oids) => {
                oids.into_iter()
                    .for_each(|oid| awaken(self.known.entry(oid).or_default()));
            }
        }
    }

    /// Brings back at once the schedulers that have yielded and whose bell rang.
    fn call_back(&mut self) {
        let now = Instant::now();
        for (oid, known) in &mut self.known {
            if known.back_at.is_some_and(|at| at > now) && memory::has_rung(*oid) {
                known.back_at = Some(now);
            }
        }
    }

    /// Handles a change of the scheduler in a slot.
    fn check_slot(&mut self, slot: &Slot, wanted: bool) {
        let database = slot.database.to_u32();
        let age = self.ages.of(database, slot.launched_at, Instant::now());
        let old = age > START_LIMIT;
        match slot.phase {
            Phase::Running(pid) if old && !memory::is_connected(pid) => {
                self.ended(slot.database, Exit::Failed);
            }
            Phase::Running(_) if !wanted => {
                memory::terminate_scheduler(slot.database);
            }
            Phase::Starting if old => self.ended(slot.database, Exit::Failed),
            Phase::Ended(exit) => self.ended(slot.database, exit),
            Phase::Absent => memory::clear(slot.database),
            Phase::Running(_) | Phase::Starting => {}
        }
    }

    fn ended(&mut self, database: pg_sys::Oid, exit: Exit) {
        memory::clear(database);
        let known = self.known.entry(database).or_default();
        let poked = std::mem::take(&mut known.poked);
        known.resting = exit == Exit::NoExtension && !poked;
        known.not_before = match exit {
            Exit::Failed | Exit::Busy => Some(Instant::now() + FAILURE_DELAY),
            _ => None,
        };
        known.back_at = (exit == Exit::Yielded).then(|| Instant::now() + worker_slot::AWAY_FOR);
        if exit == Exit::Yielded && !std::mem::replace(&mut self.said_turns, true) {
            too_few_slots("the schedulers of trax take turns".to_owned(), NO_SLOT);
        }
    }

    /// Starts missing schedulers, beginning with those that never had a turn.
    fn start_missing(&mut self, databases: &[Database]) {
        let now = Instant::now();
        let slots = memory::slots();
        let mut missing: Vec<_> = databases
            .iter()
            .filter_map(|one| {
                let known = self.known.get(&one.oid);
                let since = known.map_or(0, |known| known.waits_since(now));
                let last = known.and_then(|known| known.started_at);
                Some((since, last, self.next_start(one, &slots, now)?, one.oid))
            })
            .collect();
        missing.sort_by_key(|(since, last, at, _)| (*since, *last, *at));

        let mut refused = None;
        for (since, _, _, database) in missing.iter().filter(|(_, _, at, _)| *at <= now) {
            match start(*database, *since) {
                Start::Started => {
                    let known = self.known.entry(*database).or_default();
                    known.started_at = Some(now);
                    known.poked = false;
                    known.back_at = None;
                }
                Start::NotNow => {}
                Start::Refused(what) => {
                    refused = Some(what);
                    break;
                }
            }
        }
        if refused.is_none() {
            worker_slot::leave(my_pid());
        }
        self.report_starvation(refused, missing.len());
    }

    /// Returns when a scheduler of this database may start; `None` when it has one or needs none.
    fn next_start(&self, database: &Database, slots: &[Slot], now: Instant) -> Option<Instant> {
        let has_one = slots
            .iter()
            .any(|slot| slot.database == database.oid && slot.phase != Phase::Absent);
        match self.known.get(&database.oid) {
            _ if has_one => None,
            None => Some(now),
            Some(known) if known.resting => None,
            Some(known) => {
                let spaced = known.started_at.map(|started| started + START_SPACING);
                let at = spaced.max(known.not_before).max(known.back_at);
                Some(at.unwrap_or(now))
            }
        }
    }

    /// Logs a lack of worker slots once, and only when it lasts.
    fn report_starvation(&mut self, refused: Option<&'static str>, missing: usize) {
        let Some(what) = refused else {
            self.starved = None;
            return;
        };
        let (since, said) = self.starved.get_or_insert((Instant::now(), false));
        if *said || self.said_turns || since.elapsed() < STARVED_LIMIT {
            return;
        }
        *said = true;
        let message =
            format!("the trax launcher cannot start the schedulers of {missing} databases");
        too_few_slots(message, what);
    }

    fn pause(&self, databases: &[Database]) -> Duration {
        let now = Instant::now();
        let slots = memory::slots();
        databases
            .iter()
            .filter_map(|one| self.next_start(one, &slots, now))
            .filter(|at| *at > now)
            .map(|at| at - now)
            .fold(self.longest_pause(databases), Duration::min)
    }

    /// Returns the longest time until the next pass: a short one while a database waits for a slot,
    /// or has no scheduler that its bell would wake.
    fn longest_pause(&self, databases: &[Database]) -> Duration {
        let mut known = databases.iter().filter_map(|one| self.known.get(&one.oid));
        let is_away = known.any(|known| known.back_at.is_some());
        if is_away || self.starved.is_some() {
            worker_slot::TRY_AGAIN
        } else {
            POLL
        }
    }
}

/// Logs that the server has too few worker slots.
fn too_few_slots(message: String, detail: &str) {
    let code = PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
    ErrorReport::new(code, message, function_name!())
        .set_detail(detail)
        .set_hint("Raise max_worker_processes and restart, or name the databases that need a scheduler in trax.databases.")
        .report(PgLogLevel::WARNING);
}

enum Start {
    Started,
    NotNow,
    Refused(&'static str),
}

fn start(database: pg_sys::Oid, since: pg_sys::TimestampTz) -> Start {
    if !worker_slot::is_next(since, now()) {
        return refused(since);
    }
    match memory::reserve(database, now()) {
        Reservation::NotNow => return Start::NotNow,
        Reservation::Full => return Start::Refused("The launcher can run 128 schedulers."),
        Reservation::Reserved => {}
    }
    // The handle is allocated in the transaction of this pass and goes with it.
    match scheduler::registration(database)
        .set_notify_pid(my_pid())
        .load_dynamic()
    {
        Ok(_) => Start::Started,
        Err(_) => {
            memory::clear(database);
            refused(since)
        }
    }
}

fn refused(since: pg_sys::TimestampTz) -> Start {
    worker_slot::wait(Wanted::Scheduler, since, now());
    Start::Refused(NO_SLOT)
}

/// Returns the databases that a scheduler can connect to, without templates.
fn connectable_databases() -> Vec<Database> {
    let mut found = Vec::new();
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: a scan of a shared catalog inside a transaction, as the server's own launchers do;
    // each tuple is a pg_database row, read before the scan moves on.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::DatabaseRelationId, lock);
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::InvalidOid,
            false,
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
        );
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            // A connection limit of -2 marks a database whose removal was interrupted.
            if row.datallowconn && !row.datistemplate && row.datconnlimit != -2 {
                let name = CStr::from_ptr(row.datname.data.as_ptr());
                found.push(Database {
                    oid: row.oid,
                    name: name.to_string_lossy().into_owned(),
                });
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, lock);
    }
    found
}

fn now() -> pg_sys::TimestampTz {
    // SAFETY: no arguments, no state.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_ages_whatever_the_clock_of_the_machine_says() {
        let (mut ages, began) = (Ages::default(), Instant::now());
        let later = began + START_LIMIT * 2;
        // Launched in the future: the clock was set back.
        assert_eq!(ages.of(1, i64::MAX, began), Duration::ZERO);
        assert_eq!(ages.of(1, i64::MAX, later), START_LIMIT * 2);
        // Another start, long ago: the clock was set forward.
        assert_eq!(ages.of(1, 0, later), Duration::ZERO);
        assert_eq!(ages.of(2, 0, later), Duration::ZERO);
    }
}
