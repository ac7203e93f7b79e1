//! Executors whose session did not start: the role, and the server's error.
//!
//! The process adds an entry when it ends, and the scheduler of its database takes it. If no entry
//! is free, the oldest entry is replaced: the next start for its role fails too, and adds another.

use pgrx::pg_sys::{Oid, TimestampTz};
use pgrx::{AssertPGRXSharedMemory, PgLwLock};

/// Most bytes of a message.
const BYTES: usize = 240;
const ENTRIES: usize = 16;

#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The database, or invalid for a free entry.
    database: Oid,
    role: Oid,
    at: TimestampTz,
    sqlstate: [u8; 5],
    length: usize,
    message: [u8; BYTES],
}

const FREE: Entry = Entry {
    database: Oid::INVALID,
    role: Oid::INVALID,
    at: 0,
    sqlstate: [0; 5],
    length: 0,
    message: [0; BYTES],
};

/// Why the session of a role did not start.
pub(crate) struct FailedStart {
    pub(crate) role: Oid,
    pub(crate) sqlstate: String,
    pub(crate) message: String,
}

type Board = AssertPGRXSharedMemory<[Entry; ENTRIES]>;

// SAFETY: no other lock has this name.
pub(super) static FAILED: PgLwLock<Board> = unsafe { PgLwLock::new(c"trax failed starts") };

pub(super) fn none() -> Board {
    // SAFETY: it has no pointers and nothing to drop.
    unsafe { AssertPGRXSharedMemory::new([FREE; ENTRIES]) }
}

/// Adds an entry, replacing an earlier one for this role; a message that is too long is cut.
pub(crate) fn add(database: Oid, failed: &FailedStart, now: TimestampTz) {
    let mut entry = Entry {
        database,
        role: failed.role,
        at: now,
        ..FREE
    };
    let end = (0..=failed.message.len().min(BYTES))
        .rev()
        .find(|&end| failed.message.is_char_boundary(end));
    entry.length = end.unwrap_or(0);
    entry.message[..entry.length].copy_from_slice(&failed.message.as_bytes()[..entry.length]);
    for (to, from) in entry.sqlstate.iter_mut().zip(failed.sqlstate.bytes()) {
        *to = from;
    }
    let mut board = FAILED.exclusive();
    let same = |one: &Entry| one.database == database && one.role == failed.role;
    let age = |one: &Entry| (!same(one), one.database != Oid::INVALID, one.at);
    if let Some(oldest) = board.iter_mut().min_by_key(|one| age(one)) {
        *oldest = entry;
    }
}

/// Takes the entries of a database.
pub(crate) fn take(database: Oid) -> Vec<FailedStart> {
    let is_any = |board: &[Entry; ENTRIES]| board.iter().any(|one| one.database == database);
    if !is_any(&FAILED.share()) {
        return Vec::new();
    }
    let mut taken = Vec::new();
    let mut board = FAILED.exclusive();
    for one in board.iter_mut().filter(|one| one.database == database) {
        taken.push(std::mem::replace(one, FREE));
    }
    drop(board);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let failed = taken.iter().map(|one| FailedStart {
        role: one.role,
        sqlstate: text(&one.sqlstate),
        message: text(&one.message[..one.length]),
    });
    failed.collect()
}
