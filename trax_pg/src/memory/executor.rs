//! Executors: the processes that run SQL jobs, each with its database, its role and its job.
//!
//! An executor has a seat here from before it connects until it has ended, for whatever reason;
//! after a crash of the server all seats are free. Therefore a lease of a SQL job that no executor
//! has here is lost.

use super::process::{is_connected, send_signal, send_sigterm, wake};
use crate::server::backend::my_pid;
use crate::server::clock::Timestamp;
use pgrx::pg_sys::{self, Oid};
use pgrx::{AssertPGRXSharedMemory, PgLwLock};

/// Most executors of all databases.
pub(crate) const EXECUTORS_AT_MOST: usize = 64;
/// An executor that has not started this long after its registration never will, in microseconds.
const START_MICROS: i64 = 10_000_000;

/// An executor that still runs this long after it was asked to end waits for something, in
/// microseconds.
const LEAVES_WITHIN: u64 = 2_000_000;

/// An executor, or a free seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executor {
    /// The database, or invalid for a free seat.
    pub(crate) database: Oid,
    pub(crate) role: Oid,
    /// Its process; 0 until it has started.
    pub(crate) pid: i32,
    registered_at: pg_sys::TimestampTz,
    /// The job that it executes, or 0.
    pub(crate) job_id: i64,
    /// When it first looked for a job and found none, since its last job; 0 before that, and while
    /// it has a job.
    pub(super) idle_since: pg_sys::TimestampTz,
    /// Another process needs its worker slot: it must end when it has no job.
    pub(crate) retires: bool,
    /// When it was last asked to end.
    retired_at: pg_sys::TimestampTz,
    /// Its statement was cancelled only because the job must run later.
    is_paused: bool,
    /// When its statement was first cancelled; 0 if it was not.
    cancelled_at: pg_sys::TimestampTz,
}

const FREE: Executor = Executor {
    database: Oid::INVALID,
    role: Oid::INVALID,
    pid: 0,
    registered_at: 0,
    job_id: 0,
    idle_since: 0,
    retires: false,
    retired_at: 0,
    is_paused: false,
    cancelled_at: 0,
};

type Board = AssertPGRXSharedMemory<[Executor; EXECUTORS_AT_MOST]>;

// SAFETY: no other lock has this name.
pub(super) static EXECUTORS: PgLwLock<Board> = unsafe { PgLwLock::new(c"trax executors") };

pub(super) fn none() -> Board {
    // SAFETY: it has no pointers and nothing to drop.
    unsafe { AssertPGRXSharedMemory::new([FREE; EXECUTORS_AT_MOST]) }
}

/// Returns the executors of all databases.
pub(super) fn all() -> Vec<Executor> {
    let copy: [Executor; EXECUTORS_AT_MOST] = **EXECUTORS.share();
    copy.into_iter()
        .filter(|one| one.database != Oid::INVALID)
        .collect()
}

/// Returns the executors of a database.
pub(crate) fn of(database: Oid) -> Vec<Executor> {
    let mut found = all();
    found.retain(|one| one.database == database);
    found
}

/// Returns whether a database has a running executor other than this process.
pub(crate) fn is_any(database: Oid) -> bool {
    let others = |one: &Executor| one.pid != 0 && one.pid != my_pid();
    of(database).iter().any(others)
}

/// Reserves a seat for an executor that is about to be registered.
pub(crate) fn reserve(database: Oid, role: Oid, now: pg_sys::TimestampTz) -> Option<usize> {
    let mut board = EXECUTORS.exclusive();
    let is_free = |one: &Executor| one.database == Oid::INVALID || one.has_not_started(now);
    let seat = board.iter().position(is_free)?;
    board[seat] = Executor {
        database,
        role,
        registered_at: now,
        ..FREE
    };
    Some(seat)
}

/// Frees a seat.
pub(crate) fn clear(seat: usize) {
    EXECUTORS.exclusive()[seat] = FREE;
}

/// Frees the seats of executors of a database that did not start.
pub(crate) fn clear_missing(database: Oid, now: pg_sys::TimestampTz) {
    let mut board = EXECUTORS.exclusive();
    for one in board.iter_mut() {
        if one.database == database && one.has_not_started(now) {
            *one = FREE;
        }
    }
}

/// Takes the seat that was reserved for this process; `None` if it is no longer reserved.
pub(crate) fn enter(seat: usize, pid: i32) -> Option<Executor> {
    let mut board = EXECUTORS.exclusive();
    let one = board.get_mut(seat)?;
    if one.database == Oid::INVALID || one.pid != 0 {
        return None;
    }
    one.pid = pid;
    Some(*one)
}

/// Frees the seat of a process that ends, and returns its content.
pub(crate) fn leave(seat: usize, pid: i32) -> Option<Executor> {
    let mut board = EXECUTORS.exclusive();
    (board[seat].pid == pid).then(|| std::mem::replace(&mut board[seat], FREE))
}

/// Reserves the seat of this process for its successor.
pub(crate) fn hand_over(seat: usize, now: pg_sys::TimestampTz) {
    let mut board = EXECUTORS.exclusive();
    board[seat] = Executor {
        database: board[seat].database,
        role: board[seat].role,
        registered_at: now,
        ..FREE
    };
}

/// Stores the job that the executor in a seat executes, 0 for none. Call it before the claim
/// commits, and after the outcome has committed.
pub(crate) fn executes(seat: usize, job_id: i64) {
    let mut board = EXECUTORS.exclusive();
    board[seat].job_id = job_id;
    board[seat].idle_since = 0;
    board[seat].is_paused = false;
    board[seat].cancelled_at = 0;
}

/// Returns whether the job in a seat was cancelled only because it must run later.
pub(crate) fn is_paused(seat: usize) -> bool {
    EXECUTORS.share()[seat].is_paused
}

/// Notes that the executor in a seat has looked for a job and found none.
pub(crate) fn found_none(seat: usize, now: pg_sys::TimestampTz) {
    let mut board = EXECUTORS.exclusive();
    if board[seat].idle_since == 0 {
        board[seat].idle_since = now;
    }
}

impl Executor {
    /// Returns whether the process for which the seat was reserved did not start in time; its
    /// database may have been dropped.
    fn has_not_started(&self, now: pg_sys::TimestampTz) -> bool {
        self.pid == 0 && !(0..START_MICROS).contains(&(now - self.registered_at))
    }

    /// Returns whether it runs, has found no job, and was not asked to end.
    pub(crate) fn is_idle(&self) -> bool {
        self.pid != 0 && self.idle_since != 0 && !self.retires
    }

    /// Returns whether it executes a job, and was not asked to end after it.
    pub(crate) fn is_busy(&self) -> bool {
        self.pid != 0 && self.job_id != 0 && !self.retires
    }

    /// Returns whether it is about to end. An executor that has not ended within `LEAVES_WITHIN`
    /// waits for a lock, perhaps for long, and is not counted.
    pub(crate) fn is_leaving(&self, now: pg_sys::TimestampTz) -> bool {
        self.pid != 0
            && self.job_id == 0
            && self.retires
            && now.abs_diff(self.retired_at) < LEAVES_WITHIN
    }
}

/// Returns whether the executor in a seat was asked to end.
pub(crate) fn retires(seat: usize) -> bool {
    EXECUTORS.share()[seat].retires
}

/// Asks an executor to end when it has no job, and wakes it.
pub(crate) fn retire(pid: i32) {
    let now = Timestamp::now().0;
    for one in EXECUTORS.exclusive().iter_mut() {
        if one.pid == pid {
            one.retires = true;
            one.retired_at = now;
        }
    }
    wake(pid);
}

/// Wakes the executors of a role that wait for a job.
pub(crate) fn wake_idle(database: Oid, role: Oid) {
    let all = of(database);
    let idle = all
        .iter()
        .filter(|one| one.role == role && one.pid != 0 && one.job_id == 0);
    idle.for_each(|one| wake(one.pid));
}

/// Cancels the statement of a job, if this executor still executes it; `is_paused` if the job must
/// run later. If the statement still runs `grace` microseconds after it was first cancelled, the
/// executor is terminated.
pub(crate) fn cancel(pid: i32, job_id: i64, is_paused: bool, now: pg_sys::TimestampTz, grace: i64) {
    // The executor gives up a job under this lock, so its next job is not cancelled instead.
    for one in EXECUTORS.exclusive().iter_mut() {
        if one.pid != pid || one.job_id != job_id || pid == 0 {
            continue;
        }
        one.is_paused = is_paused;
        if one.cancelled_at == 0 || one.cancelled_at > now {
            one.cancelled_at = now;
        }
        match now - one.cancelled_at < grace {
            true => send_signal(pid, pg_sys::SIGINT as i32),
            false if is_connected(pid) => send_sigterm(pid),
            false => {}
        }
    }
}

/// Terminates all executors of a database, except this process, whose statement asks for it.
pub(crate) fn terminate_all(database: Oid) {
    for one in EXECUTORS.exclusive().iter_mut() {
        if one.database == database && one.pid == 0 {
            // The process ends when it finds that its seat is free.
            *one = FREE;
        } else if one.database == database && one.pid != my_pid() && is_connected(one.pid) {
            send_sigterm(one.pid);
        }
    }
}
