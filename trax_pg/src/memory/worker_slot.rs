//! Worker slots: which process gets the next one if the server has too few.
//!
//! A *worker slot* is one of `max_worker_processes`. A process that was refused one waits in the
//! *line*: the launcher, for the database that has waited longest for its scheduler; a scheduler,
//! for the statements of its database. The line is in the order of the times at which the waits
//! began: a statement became ready, or a scheduler yielded. A database whose scheduler has not run
//! yet, or did not end by yielding, comes before all.
//!
//! The first in the line asks one holder of a slot to *yield*: the executor that has been idle
//! longest; otherwise the scheduler that has run longest, if at least for `TURN`; otherwise an
//! executor, which then ends after its statement. The others do not try, so the first gets the
//! slot. A scheduler that has yielded starts again after `AWAY_FOR`, or when its bell rings:
//! with more databases than slots the schedulers take turns.
//!
//! Holds: a scheduler yields to statements only while the server has fewer than two executors; an
//! entry that is not renewed expires, so a process that dies does not block the line.

use super::executor::{self, Executor};
use super::process::{is_connected, wake};
use super::slots;
use crate::server::backend::my_pid;
use pgrx::pg_sys::TimestampTz;
use pgrx::{AssertPGRXSharedMemory, PgLwLock};
use std::time::Duration;

/// Interval at which a process in the line tries again: a slot becomes free a moment after its
/// process has ended.
pub(crate) const TRY_AGAIN: Duration = Duration::from_millis(100);
/// How long a scheduler that has yielded stays away while its bell does not ring.
pub(crate) const AWAY_FOR: Duration = Duration::from_secs(4);
/// How long a scheduler runs before it may be asked to yield, in microseconds.
const TURN: TimestampTz = 500_000;
/// Age at which an entry, or a request to yield, expires, in microseconds.
const RENEWED_WITHIN: TimestampTz = 2_000_000;
/// A process that has waited this long asks a busy executor to end after its statement, in
/// microseconds.
pub(crate) const ASK_BUSY_AFTER: TimestampTz = 1_000_000;
/// A scheduler yields to a statement only while the server has fewer executors.
const EXECUTORS_AT_LEAST: usize = 2;
/// Most processes in the line: one for each scheduler, and the launcher.
const WAITERS: usize = 160;

/// The kind of process that needs a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Scheduler,
    Executor,
}

#[derive(Clone, Copy)]
struct Waiter {
    /// The process, or 0 for a free entry.
    pid: i32,
    since: TimestampTz,
    renewed_at: TimestampTz,
}

#[derive(Clone, Copy)]
pub(super) struct Line {
    waiters: [Waiter; WAITERS],
    /// The scheduler that was asked to yield, or 0, and when.
    asked: i32,
    asked_at: TimestampTz,
}

type Board = AssertPGRXSharedMemory<Line>;

// SAFETY: no other lock has this name.
pub(super) static LINE: PgLwLock<Board> = unsafe { PgLwLock::new(c"trax worker slots") };

const EMPTY: Line = Line {
    waiters: [Waiter {
        pid: 0,
        since: 0,
        renewed_at: 0,
    }; WAITERS],
    asked: 0,
    asked_at: 0,
};

pub(super) fn empty() -> Board {
    // SAFETY: it has no pointers and nothing to drop.
    unsafe { AssertPGRXSharedMemory::new(EMPTY) }
}

fn is_recent(at: TimestampTz, now: TimestampTz) -> bool {
    // Another process may have written it after this one had read the clock.
    now.abs_diff(at) < RENEWED_WITHIN as u64
}

impl Line {
    /// Returns whether no other process in the line has waited since before `since`.
    fn is_next(&self, pid: i32, since: TimestampTz, now: TimestampTz) -> bool {
        !self.waiters.iter().any(|one| {
            one.pid != 0
                && one.pid != pid
                && is_recent(one.renewed_at, now)
                && (one.since, one.pid) < (since, pid)
        })
    }

    fn renew(&mut self, pid: i32, since: TimestampTz, now: TimestampTz) {
        let mine = self.waiters.iter().position(|one| one.pid == pid);
        let free = |one: &Waiter| one.pid == 0 || !is_recent(one.renewed_at, now);
        if let Some(index) = mine.or_else(|| self.waiters.iter().position(free)) {
            self.waiters[index] = Waiter {
                pid,
                since,
                renewed_at: now,
            };
        }
    }
}

/// Returns whether this process may take the next free slot for a wait that began at `since`.
pub(crate) fn is_next(since: TimestampTz, now: TimestampTz) -> bool {
    LINE.share().is_next(my_pid(), since, now)
}

/// Returns whether another process waits for a slot.
pub(crate) fn is_short(now: TimestampTz) -> bool {
    !is_next(TimestampTz::MAX, now)
}

/// Adds this process to the line, or renews its entry. The first in the line asks for a slot.
pub(crate) fn wait(wanted: Wanted, since: TimestampTz, now: TimestampTz) {
    let is_first = {
        let mut line = LINE.exclusive();
        line.renew(my_pid(), since, now);
        line.is_next(my_pid(), since, now)
    };
    if is_first {
        ask(wanted, since, now);
    }
}

/// Removes a process from the line.
pub(crate) fn leave(pid: i32) {
    let mut line = LINE.exclusive();
    for one in line.waiters.iter_mut().filter(|one| one.pid == pid) {
        one.pid = 0;
    }
    if line.asked == pid {
        line.asked = 0;
    }
}

/// Returns whether this scheduler was asked to yield.
pub(crate) fn yields() -> bool {
    LINE.share().asked == my_pid()
}

/// Asks one holder of a slot to yield, unless one that was asked is about to.
fn ask(wanted: Wanted, since: TimestampTz, now: TimestampTz) {
    let executors = executor::all();
    let leaves = |one: &Executor| one.is_leaving(now);
    if executors.iter().any(leaves) || is_one_asked(now) {
        return;
    }
    let idle = executors.iter().filter(|one| one.is_idle());
    if let Some(one) = idle.min_by_key(|one| one.idle_since) {
        return executor::retire(one.pid);
    }
    if wanted == Wanted::Scheduler || executors.len() < EXECUTORS_AT_LEAST {
        let others = slots().into_iter().filter_map(|slot| {
            let pid = slot.pid().filter(|&pid| pid != my_pid())?;
            let had_its_turn = now.saturating_sub(slot.launched_at).abs() >= TURN;
            had_its_turn.then_some((slot.launched_at, pid))
        });
        let mut others: Vec<_> = others.collect();
        others.sort_unstable();
        let mut line = LINE.exclusive();
        // A scheduler that was asked and still runs is waiting for a lock: ask the next one.
        let asked = others.iter().position(|&(_, pid)| pid == line.asked);
        let next = asked.map_or(0, |index| (index + 1) % others.len());
        if let Some(&(_, pid)) = others.get(next) {
            line.asked = pid;
            line.asked_at = now;
            drop(line);
            return wake(pid);
        }
        drop(line);
    }
    if now.saturating_sub(since) >= ASK_BUSY_AFTER
        && let Some(one) = executors.iter().find(|one| one.is_busy())
    {
        executor::retire(one.pid);
    }
}

fn is_one_asked(now: TimestampTz) -> bool {
    let line = LINE.share();
    is_recent(line.asked_at, now) && is_connected(line.asked)
}

#[cfg(test)]
mod tests {
    use super::{EMPTY, RENEWED_WITHIN};

    #[test]
    fn the_oldest_comes_first_and_one_that_no_longer_waits_blocks_nobody() {
        let mut line = EMPTY;
        assert!(line.is_next(1, 50, 100));
        line.renew(1, 50, 100);
        line.renew(2, 40, 100);
        assert!(!line.is_next(1, 50, 101));
        assert!(line.is_next(2, 40, 101));
        assert!(line.is_next(3, 30, 101), "older than both");
        line.renew(1, 50, 100 + RENEWED_WITHIN);
        assert!(line.is_next(1, 50, 100 + RENEWED_WITHIN));
        // The clock was set back.
        assert!(line.is_next(2, 60, 10));
    }

    #[test]
    fn those_of_the_same_age_are_not_first_both() {
        let mut line = EMPTY;
        line.renew(1, 50, 100);
        line.renew(2, 50, 100);
        assert!(line.is_next(1, 50, 100));
        assert!(!line.is_next(2, 50, 100));
    }
}
