//! Shared memory: hints that the sessions and background processes of the server share.
//!
//! A crash or a restart of the server clears all of it, and there is none unless the library is
//! preloaded ([`available`]): so it has only state that can be lost or rebuilt. This file has the
//! *slots*: a slot is the record of a database that has a scheduler, or that a statement has
//! *closed* because it needs the database without one. A *poke* asks the launcher to look at a
//! database again. The other files have bells, lanes, bounds, waits, work that was left and so on.
//!
//! Holds: nothing here raises an error while a lock is held, so that the lock is always released.

mod area;
mod bell;
mod bound;
pub(crate) mod counters;
pub(crate) mod executor;
pub(crate) mod failed_start;
mod lane;
pub(crate) mod left;
pub(crate) mod prepared;
mod process;
pub(crate) mod rate;
mod rate_gate;
pub(crate) mod waiting;
pub(crate) mod worker_slot;

pub(crate) use bell::{Bell, CANCELS_AT_MOST, bell, has_rung};
pub(crate) use bound::{
    Bound, GATE_MICROS, Reading, opened_since, resume as resume_bounds,
    suspend_all as suspend_bounds,
};
pub(crate) use lane::{
    Finding, LanesState, Peek, Section, all, end_skips, has_skips, lanes, lower, lowered_since,
    next_entries, peek, publish, raise, repaired, repaired_to, skip,
};
pub(crate) use process::is_connected;
pub(crate) use rate_gate::{Changes, RateGates, first_may_differ};

use bell::{BELLS, LOCK as BELLS_LOCK};
use bound::BOUNDS;
use counters::{TALLIES, empty_tallies};
use executor::EXECUTORS;
use failed_start::FAILED;
use lane::{LANES, LOCK as LANES_LOCK};
use left::LEFT;
use pgrx::pg_sys::{self, Oid};
use pgrx::{AssertPGRXSharedMemory, PgLwLock};
use prepared::{LOCK as PREPARED_LOCK, PREPARED};
use process::send_sigterm;
use rate::{LOCK as RATES_LOCK, RATES};
use rate_gate::SAVED;
use std::sync::atomic::{AtomicBool, Ordering};
use waiting::{LOCK as WAITS_LOCK, WAITS};
use worker_slot::LINE;

/// Most databases that can have a scheduler, or be closed, at once.
const SLOTS: usize = 128;
/// Most databases that can be poked; beyond that the launcher looks at all databases.
const POKES: usize = 32;

/// The state of the scheduler of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The database has no scheduler.
    Absent,
    /// Registered with the postmaster.
    Starting,
    /// Running, as this process.
    Running(i32),
    /// Ended for this reason, which the launcher has not seen yet.
    Ended(Exit),
}

/// Why a scheduler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// An error, or an end for which the scheduler gave no reason.
    Failed,
    /// SIGTERM: by a person, by a statement that needs the database alone, or at shutdown.
    Terminated,
    /// Its database has no extension.
    NoExtension,
    /// The settings of its database have changed, so it must connect again.
    Restart,
    /// Another scheduler serves this database.
    Busy,
    /// A statement has closed the database.
    Closed,
    /// Another process needs its worker slot: see `worker_slot.rs`.
    Yielded,
}

/// The record of a database that has a scheduler or is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The database, or invalid for a free slot.
    pub(crate) database: Oid,
    /// The state of its scheduler.
    pub(crate) phase: Phase,
    /// When the scheduler was registered.
    pub(crate) launched_at: pg_sys::TimestampTz,
    /// The process that vacuums each table, or 0. A vacuum registers before it connects, and leaves
    /// at its end, for whatever reason.
    vacuums: [i32; VACUUMS],
    /// The process whose statement needs the database without a scheduler, or 0.
    closed_by: i32,
}

/// Number of tables that are vacuumed.
pub(crate) const VACUUMS: usize = 3;

const FREE: Slot = Slot {
    database: Oid::INVALID,
    phase: Phase::Absent,
    launched_at: 0,
    vacuums: [0; VACUUMS],
    closed_by: 0,
};

#[derive(Clone, Copy)]
struct Shared {
    launcher: i32,
    slots: [Slot; SLOTS],
    pokes: [Oid; POKES],
    poked: usize,
}

type Board = AssertPGRXSharedMemory<Shared>;

// SAFETY: no other lock has this name.
static BOARD: PgLwLock<Board> = unsafe { PgLwLock::new(c"trax") };

/// Set in the postmaster by `_PG_init` and inherited by every process it forks.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Returns whether the library is being loaded by `shared_preload_libraries`, the only time
/// at which shared memory can be requested.
pub(crate) fn can_be_requested() -> bool {
    // SAFETY: a plain flag of the server, read by its only thread.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Requests the shared memory. `_PG_init` calls it while the library is preloaded.
#[allow(
    unexpected_cfgs,
    reason = "pgrx's macro also names server versions before 15"
)]
pub(crate) fn request() {
    use pgrx::{pg_guard, pg_shmem_init};
    pg_shmem_init!(BOARD = empty_board());
    pg_shmem_init!(BELLS = ());
    pg_shmem_init!(BELLS_LOCK = 0);
    pg_shmem_init!(TALLIES = empty_tallies());
    pg_shmem_init!(BOUNDS = ());
    pg_shmem_init!(LANES = ());
    pg_shmem_init!(LANES_LOCK = 0);
    pg_shmem_init!(PREPARED = ());
    pg_shmem_init!(PREPARED_LOCK = 0);
    pg_shmem_init!(WAITS = ());
    pg_shmem_init!(WAITS_LOCK = 0);
    pg_shmem_init!(RATES = ());
    pg_shmem_init!(SAVED = ());
    pg_shmem_init!(RATES_LOCK = 0);
    pg_shmem_init!(EXECUTORS = executor::none());
    pg_shmem_init!(FAILED = failed_start::none());
    pg_shmem_init!(LEFT = left::none());
    pg_shmem_init!(LINE = worker_slot::empty());
    REQUESTED.store(true, Ordering::Relaxed);
}

fn empty_board() -> Board {
    let shared = Shared {
        launcher: 0,
        slots: [FREE; SLOTS],
        pokes: [Oid::INVALID; POKES],
        poked: 0,
    };
    // SAFETY: Shared has no pointers and nothing to drop.
    unsafe { AssertPGRXSharedMemory::new(shared) }
}

/// Returns whether there is shared memory: the library was preloaded.
pub(crate) fn available() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

impl Shared {
    fn find(&mut self, database: Oid) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.database == database)
    }

    fn find_or_take(&mut self, database: Oid) -> Option<&mut Slot> {
        let index = self
            .slots
            .iter()
            .position(|slot| slot.database == database)
            .or_else(|| {
                self.slots
                    .iter()
                    .position(|slot| slot.database == Oid::INVALID)
            })?;
        let slot = &mut self.slots[index];
        slot.database = database;
        Some(slot)
    }

    fn vacuum_enters(&mut self, database: Oid, table: usize, pid: i32) -> bool {
        let Some(slot) = self.find_or_take(database) else {
            return false;
        };
        if slot.is_closed() || slot.vacuums[table] != 0 {
            self.free_if_unused(database);
            return false;
        }
        slot.vacuums[table] = pid;
        true
    }

    fn vacuum_leaves(&mut self, database: Oid, table: usize, pid: i32) {
        if let Some(slot) = self.find(database)
            && slot.vacuums[table] == pid
        {
            slot.vacuums[table] = 0;
            self.free_if_unused(database);
        }
    }

    fn free_if_unused(&mut self, database: Oid) {
        if let Some(slot) = self.find(database)
            && slot.phase == Phase::Absent
            && slot.vacuums == [0; VACUUMS]
            && !slot.is_closed()
        {
            *slot = FREE;
        }
    }
}

impl Slot {
    /// Returns whether a process that is still connected has closed the database.
    fn is_closed(&self) -> bool {
        self.closed_by != 0 && is_connected(self.closed_by)
    }

    /// Returns the process of the scheduler, if it runs.
    pub(crate) fn pid(&self) -> Option<i32> {
        match self.phase {
            Phase::Running(pid) => Some(pid),
            _ => None,
        }
    }
}

/// The result of [`reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// The slot is reserved: the caller registers the scheduler now.
    Reserved,
    /// The database is closed, or has a scheduler already.
    NotNow,
    /// All slots are taken.
    Full,
}

/// Discards all hints about this database: its lanes and its bounds.
pub(crate) fn forget() {
    lane::forget();
    void_bounds();
}

/// Makes all bounds of this database void, which opens all its gates: also those that a claim which
/// has begun is about to close.
pub(crate) fn void_bounds() {
    rate_gate::any_first_may_differ();
    bound::void_all();
}

/// Frees the bells, lanes and tallies of dropped databases. Call it inside a transaction.
pub(crate) fn forget_dropped() {
    let mut databases = counters::databases();
    databases.extend(bell::databases());
    databases.sort_unstable();
    databases.dedup();
    // SAFETY: inside a transaction. Afterwards every database that was listed above is visible.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    databases.retain(|&database| !database_exists(database));
    if !databases.is_empty() {
        counters::free(&databases);
        // Without the lock of the bells, because it may take long; no session changes these lanes
        // meanwhile.
        for number in bell::numbers(&databases) {
            lane::free(number);
        }
        bell::free(&databases);
    }
}

fn database_exists(database: u32) -> bool {
    // SAFETY: a look into the catalog inside a transaction; null when there is no such database.
    unsafe { !pg_sys::get_database_name(Oid::from(database)).is_null() }
}

/// Returns the slots in use.
pub(crate) fn slots() -> Vec<Slot> {
    let copy = BOARD.share().slots;
    copy.into_iter()
        .filter(|slot| slot.database != Oid::INVALID)
        .collect()
}

/// Reserves the slot of a database for a scheduler about to be registered.
pub(crate) fn reserve(database: Oid, now: pg_sys::TimestampTz) -> Reservation {
    let mut board = BOARD.exclusive();
    let Some(slot) = board.find_or_take(database) else {
        return Reservation::Full;
    };
    if slot.phase != Phase::Absent || slot.is_closed() {
        return Reservation::NotNow;
    }
    *slot = Slot {
        database,
        phase: Phase::Starting,
        launched_at: now,
        vacuums: slot.vacuums,
        closed_by: 0,
    };
    Reservation::Reserved
}

/// Clears a slot whose scheduler is known to be gone.
pub(crate) fn clear(database: Oid) {
    let mut board = BOARD.exclusive();
    if let Some(slot) = board.find(database) {
        slot.phase = Phase::Absent;
    }
    board.free_if_unused(database);
}

/// Registers a scheduler before it connects; returns false if the database is closed or no slot is
/// free.
pub(crate) fn enter(database: Oid, pid: i32) -> bool {
    let mut board = BOARD.exclusive();
    let Some(slot) = board.find_or_take(database) else {
        return false;
    };
    if slot.is_closed() {
        return false;
    }
    slot.phase = Phase::Running(pid);
    true
}

/// Removes a scheduler after its connection ended, and wakes the launcher.
pub(crate) fn leave(database: Oid, pid: i32, exit: Exit) {
    {
        let mut board = BOARD.exclusive();
        if let Some(slot) = board.find(database)
            && (slot.phase == Phase::Running(pid) || slot.phase == Phase::Starting)
        {
            slot.phase = Phase::Ended(exit);
        }
    }
    wake_launcher();
}

/// Registers the vacuum of a table before it connects; returns false if the database is closed, the
/// table has another vacuum, or no slot is free.
pub(crate) fn vacuum_enters(database: Oid, table: usize, pid: i32) -> bool {
    BOARD.exclusive().vacuum_enters(database, table, pid)
}

/// Removes a vacuum after its connection ended.
pub(crate) fn vacuum_leaves(database: Oid, table: usize, pid: i32) {
    BOARD.exclusive().vacuum_leaves(database, table, pid);
}

/// Returns whether a scheduler, a vacuum or an executor other than this process serves a database.
pub(crate) fn is_served(database: Oid) -> bool {
    executor::is_any(database)
        || slots().iter().any(|slot| {
            slot.database == database && (slot.pid().is_some() || slot.vacuums != [0; VACUUMS])
        })
}

/// Returns whether a statement has closed a database.
pub(crate) fn is_closed(database: Oid) -> bool {
    BOARD
        .exclusive()
        .find(database)
        .is_some_and(|slot| slot.is_closed())
}

/// Sends SIGTERM to the scheduler and the vacuums of a database; returns the scheduler's process if
/// there is one.
pub(crate) fn terminate_scheduler(database: Oid) -> Option<i32> {
    let mut board = BOARD.exclusive();
    let slot = board.find(database)?;
    for pid in slot.vacuums.into_iter().filter(|&pid| pid != 0) {
        send_sigterm(pid);
    }
    let pid = slot.pid()?;
    // Each process leaves the slot under this lock before it exits, so no pid is reused yet.
    send_sigterm(pid);
    Some(pid)
}

/// Keeps schedulers out of a database until [`reopen_databases`]; returns false if all slots are
/// taken.
pub(crate) fn close_database(database: Oid, holder: i32) -> bool {
    let mut board = BOARD.exclusive();
    match board.find_or_take(database) {
        Some(slot) => {
            slot.closed_by = holder;
            true
        }
        None => false,
    }
}

/// Reopens the databases that a process has closed.
pub(crate) fn reopen_databases(holder: i32) {
    let mut board = BOARD.exclusive();
    for index in 0..SLOTS {
        if board.slots[index].closed_by == holder {
            board.slots[index].closed_by = 0;
            let database = board.slots[index].database;
            board.free_if_unused(database);
        }
    }
}

/// Asks the launcher to look at a database again, and wakes it.
pub(crate) fn poke(database: Oid) {
    {
        let mut board = BOARD.exclusive();
        let poked = board.poked;
        if poked < POKES {
            board.pokes[poked] = database;
        }
        board.poked = poked.saturating_add(1);
    }
    wake_launcher();
}

/// The databases to look at again.
pub(crate) enum Pokes {
    /// All databases: more were poked than the list can hold.
    All,
    /// These.
    These(Vec<Oid>),
}

/// Takes the pokes since the last call.
pub(crate) fn take_pokes() -> Pokes {
    let mut board = BOARD.exclusive();
    let poked = std::mem::take(&mut board.poked);
    if poked > POKES {
        Pokes::All
    } else {
        Pokes::These(board.pokes[..poked].to_vec())
    }
}

/// Stores the process of the launcher.
pub(crate) fn set_launcher(pid: i32) {
    BOARD.exclusive().launcher = pid;
}

/// Wakes the launcher, if it runs.
pub(crate) fn wake_launcher() {
    let launcher = BOARD.share().launcher;
    process::wake(launcher);
}

#[cfg(test)]
mod tests {
    use super::{FREE, POKES, SLOTS, Shared};
    use pgrx::pg_sys::Oid;

    #[test]
    fn a_table_has_one_vacuum_from_before_it_connects_until_it_has_left() {
        let mut board = Shared {
            launcher: 0,
            slots: [FREE; SLOTS],
            pokes: [Oid::INVALID; POKES],
            poked: 0,
        };
        let (one, other) = (Oid::from(7), Oid::from(8));
        // Neither process is connected yet.
        assert!(board.vacuum_enters(one, 0, 11));
        assert!(!board.vacuum_enters(one, 0, 12));
        assert!(board.vacuum_enters(one, 1, 14), "the other table");
        assert!(board.vacuum_enters(other, 0, 13));
        board.vacuum_leaves(one, 0, 12);
        assert!(!board.vacuum_enters(one, 0, 12), "it was not its own");
        board.vacuum_leaves(one, 0, 11);
        assert!(board.vacuum_enters(one, 0, 12));
    }
}
