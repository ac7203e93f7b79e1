//! Lanes: which of them have rows that a claim may take, and where those rows start.
//!
//! Words: a *section* is one priority of one lane, a range of the index `work_queue_ready` in order
//! of age. A section has an *entry* here while rows may wait in it. The *start* in the entry means
//! that no row waits in the section before this job; if it does not hold for certain it is not
//! *exact*. Claimed rows leave dead tuples in the index, at the beginning of the section, until a
//! vacuum; a claim that begins at the start does not read them (0.06 µs each, all of them at every
//! claim).
//!
//! What makes a row claimable is a *change*; each database counts its own. The entries of a
//! database are a list, the last one changed first: a log of what became claimable, in which each
//! section appears once. A session keeps its own list of the sections with rows, and reads here
//! what has changed since. A database has as many entries as leave room for others; beyond that its
//! oldest one goes, and the last change of that entry is *lost*.
//!
//! Holds: a session whose list contains everything up to some change, none of which was lost since,
//! and that reads what was lowered after it, misses no row. Other sessions read the sections from
//! the index. Changes before the server's start, or before a statement of a user on the queue,
//! count as lost.
//! - An exact start is never after a committed row, apart from rows that are skipped (`skip`) and from
//!   errors that the rescan corrects (`rescan`). It is raised to the first row that a claim's
//!   snapshot sees, including rows that others have locked or are deleting, and an entry is freed
//!   when the snapshot sees none; never by a transaction that has itself taken rows.
//! - A transaction that makes a row claimable lowers the start after it has committed, however
//!   late, and adds the entry if there is none; the entry stores the number of the change. A
//!   session that read a lower number of changes before its snapshot neither raises the start nor
//!   frees the entry; nor does it assume that a section without an entry is empty when a change
//!   after that number was lost.
//! - The entries are *complete* when a session has read all sections from the index, they all have
//!   entries, and nothing was lost since it began: then a section without an entry has no rows, and
//!   a new session need not read the index.
//!
//! The lock is held for a few entries at a time; what takes long (the first read of a new session,
//! the entries of a dropped database) goes through the entries in their order in memory and
//! releases the lock in between.
//!
//! Cost: 56 bytes for each entry. A database adds one only while it has fewer than twice as many as
//! are free.

mod rescan;
mod skip;
mod starts;

use super::area::{Area, zero};
use super::bell::{BELLS_AT_MOST, bell};
use pgrx::PgLwLock;
use pgrx::pg_sys;
pub(crate) use rescan::{rescan_due, rescanned, to_sweep};
pub(crate) use skip::{end_skips, has_skips, skip};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

const ENTRIES: usize = 131_072;
const BUCKETS: usize = ENTRIES;
/// The most entries that are read or changed while the lock is held.
const AT_ONCE: usize = 256;
/// Most changes that are read one after the other in the list; beyond that all entries are read in
/// their order in memory.
const FOLLOW_AT_MOST: usize = 2048;
/// The most sections that one rescan checks for whether they still have rows.
const SWEEP_AT_MOST: usize = 32;
/// The shortest time between two rescans, of sections as of leases, and the longest of sections.
pub(crate) const RESCAN_MICROS: i64 = 1_000_000;
const LONGEST_PAUSE_MICROS: i64 = 60_000_000;
/// The inverse of the share of time that rescans may take.
pub(crate) const RESCAN_SHARE: i64 = 100;
/// No entry; entries are numbered from 1.
const NOWHERE: u32 = 0;
/// The database of a free entry.
const NO_DATABASE: u16 = u16::MAX;

/// One priority of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Section {
    pub(crate) lane: i64,
    pub(crate) priority: i16,
}

#[derive(Clone, Copy)]
struct LaneStart {
    lane: i64,
    start: i64,
    /// The last change that touched it.
    changed: u64,
    /// The last change that lowered its start, or made it.
    lowered: u64,
    next_in_bucket: u32,
    newer: u32,
    older: u32,
    database: u16,
    priority: i16,
    /// No row comes before the start. Where not all entries were known when it was made, older rows
    /// may.
    exact: bool,
}

/// What can be read of a database's entries without the lock; written under it.
struct Database {
    /// How many changes there were: written last of all that a change writes.
    changes: AtomicU64,
    /// The last change that lowered or made an entry.
    lowered: AtomicU64,
    /// The last change of which something may be missing here, and how often something was lost.
    lost: AtomicU64,
    losses: AtomicU64,
    /// What was lowered before this change counts for nothing.
    void: AtomicU64,
    /// Sections without an entry have no rows.
    complete: AtomicBool,
    /// When all sections were last read, they did not all get entries.
    is_overfull: AtomicBool,
    /// The entry that was changed last, and that whose last change is the oldest.
    newest: AtomicU32,
    oldest: AtomicU32,
    count: AtomicU32,
    rescan_at: AtomicI64,
    /// Where the last rescan stopped; the lane with its sign turned, so that zero comes before
    /// all.
    rescanned_lane: AtomicI64,
    rescanned_priority: AtomicI64,
    /// Up to which entry it looked whether there are still rows.
    swept: AtomicU32,
    /// How many of the rests are its own.
    skips: AtomicU32,
}

impl Database {
    /// Notes that entries up to a change may be missing here.
    fn lose(&self, change: u64) {
        self.lost.fetch_max(change, Ordering::SeqCst);
        self.losses.fetch_add(1, Ordering::SeqCst);
        self.complete.store(false, Ordering::SeqCst);
    }

    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::SeqCst)
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Returns the number of the next change.
    fn next(&self) -> u64 {
        self.changes.load(Ordering::SeqCst) + 1
    }

    /// Discards all that was known. The caller has the lock.
    fn discard_all(&self) {
        let change = self.next();
        self.void.store(change, Ordering::SeqCst);
        self.lose(change);
        self.changes.store(change, Ordering::SeqCst);
    }

    fn is_discarded(&self, entry: &LaneStart) -> bool {
        entry.lowered < self.void.load(Ordering::SeqCst)
    }
}

/// All zero is empty.
struct LaneStarts {
    seed: u64,
    /// Entries from here on were never used.
    unused: u32,
    /// The first of those that were freed.
    free: u32,
    taken: u32,
    buckets: [u32; BUCKETS],
    entries: [LaneStart; ENTRIES],
    skips: [skip::Skip; skip::SKIPS],
}

#[repr(C)]
pub(in crate::memory) struct Memory {
    databases: [Database; BELLS_AT_MOST],
    entries: UnsafeCell<LaneStarts>,
}

pub(in crate::memory) static LANES: Area<Memory> =
    Area::new(c"trax starts of lanes", size_of::<Memory>, begin);
// SAFETY: no other lock has this name.
pub(in crate::memory) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax lanes") };

unsafe fn begin(memory: *mut Memory) {
    // SAFETY: passed on to the caller: there is room for it; all zero is valid, and empty.
    unsafe {
        zero(memory);
        // Without it a producer could choose names that share a bucket; any number does.
        let entries = (*memory).entries.get();
        pg_sys::pg_strong_random((&raw mut (*entries).seed).cast(), size_of::<u64>());
    }
}

/// Returns the memory and the number of this process's database in it.
fn own() -> Option<(&'static Memory, usize)> {
    Some((LANES.get()?, bell()?.number()))
}

impl Memory {
    fn read<T>(&self, work: impl FnOnce(&LaneStarts) -> T) -> T {
        let _lock = LOCK.share();
        // SAFETY: nobody writes while the lock is shared.
        work(unsafe { &*self.entries.get() })
    }

    fn write<T>(&self, work: impl FnOnce(&mut LaneStarts) -> T) -> T {
        let _lock = LOCK.exclusive();
        // SAFETY: the lock is exclusive.
        work(unsafe { &mut *self.entries.get() })
    }
}

impl LaneStart {
    fn section(&self) -> Section {
        Section {
            lane: self.lane,
            priority: self.priority,
        }
    }
}

/// What was known of the sections before a claim took its snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanesState {
    /// How many changes there were.
    pub(crate) changes: u64,
    /// The change that made all before it void.
    pub(crate) void: u64,
    losses: u64,
    /// When all sections were last read there were more than have entries.
    pub(crate) is_overfull: bool,
}

/// Returns the state, to be read before the snapshot is taken; `None` where there is no entry for
/// this database.
pub(crate) fn lanes() -> Option<LanesState> {
    let (memory, database) = own()?;
    let shared = &memory.databases[database];
    Some(LanesState {
        changes: shared.changes.load(Ordering::SeqCst),
        void: shared.void.load(Ordering::SeqCst),
        losses: shared.losses.load(Ordering::SeqCst),
        is_overfull: shared.is_overfull.load(Ordering::SeqCst),
    })
}

/// The sections that were lowered after a change.
pub(crate) struct Lowered {
    pub(crate) rows: Vec<(Section, i64)>,
    /// Up to which change that contains what there was.
    pub(crate) last: u64,
    /// Nothing is missing for who knew everything up to that change.
    pub(crate) whole: bool,
}

/// Returns the sections that were lowered after a change.
pub(crate) fn lowered_since(state: &LanesState, change: u64) -> Lowered {
    let nothing = |whole| Lowered {
        rows: Vec::new(),
        last: state.changes.max(change),
        whole,
    };
    let Some((memory, database)) = own() else {
        return nothing(false);
    };
    let shared = &memory.databases[database];
    // What was lost was lowered before; a change is counted when all else of it is written.
    if shared.lowered.load(Ordering::SeqCst) <= change && shared.lost() <= change {
        return nothing(true);
    }
    let few = memory.read(|entries| {
        Some(Lowered {
            rows: entries.since(shared, change)?,
            last: shared.changes.load(Ordering::SeqCst),
            whole: shared.lost() <= change,
        })
    });
    few.unwrap_or_else(|| {
        let (rows, last) = in_order(memory, database, change);
        // What went while they were read may have been among them.
        let whole = memory.read(|_| shared.lost() <= change);
        Lowered { rows, last, whole }
    })
}

/// Returns all sections that have rows; `None` when they do not all have entries.
pub(crate) fn all() -> Option<Lowered> {
    let (memory, database) = own()?;
    let shared = &memory.databases[database];
    let losses = shared.losses.load(Ordering::SeqCst);
    if !shared.is_complete() {
        return None;
    }
    let (rows, last) = in_order(memory, database, 0);
    let whole = memory.read(|_| shared.losses.load(Ordering::SeqCst) == losses);
    whole.then_some(Lowered { rows, last, whole })
}

/// Returns the sections lowered after a change, or all for 0, in their order in memory, and up to
/// which change these are all but what was lost.
fn in_order(memory: &Memory, database: usize, change: u64) -> (Vec<(Section, i64)>, u64) {
    let shared = &memory.databases[database];
    // What is lowered while they are read is read again by whoever continues there.
    let last = memory.read(|_| shared.changes.load(Ordering::SeqCst));
    let mut rows = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        from = memory.read(|entries| {
            let (part, next) = entries.part(database, at);
            let part = part.filter(|entry| !shared.is_discarded(entry));
            let part = part.filter(|entry| change == 0 || entry.lowered > change);
            rows.extend(part.map(|entry| (entry.section(), entry.start)));
            next
        });
    }
    (rows, last)
}

/// What is known of a section while a claim is under way.
pub(crate) enum Peek {
    /// No row comes before this job.
    From(i64),
    /// No rows wait.
    Empty,
    /// What the session knows by itself counts.
    Unknown,
}

pub(crate) fn peek(section: Section) -> Peek {
    let Some((memory, database)) = own() else {
        return Peek::Unknown;
    };
    let shared = &memory.databases[database];
    memory.read(|entries| match entries.valid(shared, database, section) {
        Some(number) => match entries.entries[number as usize - 1] {
            LaneStart {
                start, exact: true, ..
            } => Peek::From(start),
            _ => Peek::Unknown,
        },
        None if shared.is_complete() => Peek::Empty,
        None => Peek::Unknown,
    })
}

/// What a claim has found out about a section: its first row.
pub(crate) struct Finding {
    pub(crate) section: Section,
    pub(crate) first: Option<i64>,
}

/// Raises starts to what has been found, and frees entries of sections without rows; of sections
/// that have changed since `state` was read only lowers them. Returns for each finding whether it
/// holds. `whole` means that the session knew of all rows that there were.
pub(crate) fn raise(state: &LanesState, findings: &[Finding], whole: bool) -> Vec<bool> {
    let Some((memory, database)) = own().filter(|_| !findings.is_empty()) else {
        return vec![false; findings.len()];
    };
    let shared = &memory.databases[database];
    let mut holds = Vec::with_capacity(findings.len());
    for findings in findings.chunks(AT_ONCE) {
        memory.write(|entries| {
            let applied = findings
                .iter()
                .map(|finding| entries.apply(shared, database, finding, state, whole));
            holds.extend(applied);
        });
    }
    holds
}

/// Lowers starts to rows that have become claimable: the first job of each section.
pub(crate) fn lower(rows: impl Iterator<Item = (Section, i64)>) {
    let Some((memory, database)) = own() else {
        return;
    };
    let shared = &memory.databases[database];
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        memory.write(|entries| {
            for row in rows.by_ref().take(AT_ONCE) {
                entries.lower(shared, database, row);
            }
        });
    }
}

/// Notes sections that were read from the index after `state` was read, with their first rows; with
/// `all` these are all there are. Stops when there is no room.
pub(crate) fn publish(state: &LanesState, rows: &[(Section, i64)], all: bool) {
    let Some((memory, database)) = own() else {
        return;
    };
    let shared = &memory.databases[database];
    for rows in rows.chunks(AT_ONCE) {
        let fit = memory.write(|entries| {
            rows.iter().all(|row| {
                let is_here = entries.valid(shared, database, row.0).is_some();
                let is_wanted = is_here || all || shared.is_complete();
                !is_wanted || entries.record(shared, database, *row, state.changes)
            })
        });
        if !fit {
            if all {
                shared.is_overfull.store(true, Ordering::SeqCst);
            }
            return;
        }
    }
    if all {
        memory.write(|_| {
            // What was lost meanwhile may be in none of these rows.
            if shared.losses.load(Ordering::SeqCst) == state.losses {
                shared.complete.store(true, Ordering::SeqCst);
                shared.is_overfull.store(false, Ordering::SeqCst);
            }
        });
    }
}

/// Forgets the sections of this database.
pub(super) fn forget() {
    if let Some((memory, database)) = own() {
        memory.write(|_| memory.databases[database].discard_all());
    }
}

/// Frees the entries of the database with this number. Were somebody connected to it, those would
/// be lost like others.
pub(super) fn free(database: usize) {
    let Some(memory) = LANES.get() else { return };
    let shared = &memory.databases[database];
    memory.write(|entries| {
        shared.discard_all();
        entries.end_skips(shared, database, None);
    });
    while memory.write(|entries| {
        for _ in 0..AT_ONCE {
            match shared.oldest.load(Ordering::Relaxed) {
                NOWHERE => return false,
                oldest => {
                    shared.lose(entries.at(oldest).changed);
                    entries.remove(shared, database, oldest);
                }
            }
        }
        true
    }) {}
    shared.rescan_at.store(0, Ordering::Relaxed);
}

impl Section {
    /// Comes before all sections of lanes. No lane has this number but by a chance of one in 2^64,
    /// and then the rows of its priority 0 only are not looked at again.
    pub(crate) const BEFORE_ALL: Self = Self {
        lane: i64::MIN,
        priority: 0,
    };
}

#[cfg(test)]
mod tests;
