//! The sections with waiting rows, and where the rows of each begin.
//!
//! Words: a *section* is one priority of one lane, a range of the index `work_queue_ready` in order
//! of age. A section in which rows may wait has an *entry* here, with the *start* of the section.
//! The start is *exact* if no row of the section waits before it. Claimed rows leave dead index
//! entries at the beginning of the section until a vacuum; a claim that begins at an exact start
//! does not read them (0.06 µs each, all of them at every claim).
//!
//! An entry that is added for a new row, while sections with rows may be missing here, has a start
//! that is not exact: older rows may wait. Claims then use the start in the session's own list. The
//! start becomes exact when a session reads the section from the index and no change was lost since
//! that read began, or when a session that knew all sections with rows has read the first row.
//!
//! A *change* makes a row claimable; each database numbers its own. The entries of a database are a
//! list, the last changed first. A session keeps its own list of sections (`claim/lane`), and reads
//! only the entries that have changed since. All databases share [`ENTRIES`] entries. A database
//! may add an entry while its entries are fewer than twice the free ones; so a single database uses
//! at most two thirds of all. Beyond that its oldest entry is removed, and the changes up to the
//! last one of that entry are *lost*: they can no longer all be read here. All changes before the
//! server's start, or before a user's own statement on the queue, are lost too.
//!
//! Enters: claimable rows ([`lower`]), first rows that claims have read ([`raise`]), sections that
//! were read from the index ([`publish`]). Leaves: the sections lowered since a change
//! ([`lowered_since`]), all of them ([`all`]), the start of one ([`peek`]). Holds:
//! - A session that knew all sections with rows at a change, and reads those lowered since, knows
//!   all, unless a later change was lost: then it reads the sections from the index.
//! - A transaction that makes a row claimable lowers the start, or adds an entry, in a callback
//!   after its commit, and then rings.
//! - An exact start is never after a committed row, with three exceptions: until that callback has
//!   run (microseconds); rows that are skipped (`skip`); rows that were written while the triggers
//!   of the queue were disabled, which only the repair finds (`repair`).
//! - A claim raises a start only to the first row that its snapshot shows, apart from skipped rows,
//!   and frees the entry only if there is none. Rows that a transaction has locked or is deleting
//!   count, also those that the claim itself takes; a later claim raises the start past them.
//! - A claim neither raises nor frees if the entry has changed since before the snapshot, or if the
//!   claim's transaction had taken rows before: its snapshot does not show these, and a rollback
//!   gives them back.
//! - A missing entry means an empty section only if nothing was lost since then.
//! - The entries are *complete* if every section with rows has one: a session has read all sections
//!   from the index, all got entries, and nothing was lost since it began. Then a section without
//!   an entry has no rows, and a new session need not read the index.
//!
//! The lock is held for [`FOLLOW_AT_MOST`] entries at most; longer operations (the first read of a
//! new session, the entries of a dropped database) follow the order in memory and release the lock
//! in between. An entry takes 56 bytes.

mod repair;
mod skip;
mod starts;

use super::area::{Area, zero};
use super::bell::{BELLS_AT_MOST, bell};
use pgrx::PgLwLock;
use pgrx::pg_sys;
pub(crate) use repair::{next_entries, repaired, repaired_to};
pub(crate) use skip::{end_skips, has_skips, skip};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

const ENTRIES: usize = 131_072;
const BUCKETS: usize = ENTRIES;
/// Most entries that are changed while the lock is held; four times as many are read in the order
/// in memory.
const AT_ONCE: usize = 256;
/// Most entries that are read along the list; beyond that all entries are read in the order in
/// memory.
const FOLLOW_AT_MOST: usize = 2048;
/// No entry; entries are numbered from 1.
const NOWHERE: u32 = 0;
/// The database of a free entry.
const NO_DATABASE: u16 = u16::MAX;

/// A priority of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Section {
    pub(crate) lane: i64,
    pub(crate) priority: i16,
}

#[derive(Clone, Copy)]
struct LaneStart {
    lane: i64,
    start: i64,
    /// The last change of this section.
    changed: u64,
    /// The last change that lowered the start, or added the entry.
    lowered: u64,
    next_in_bucket: u32,
    newer: u32,
    older: u32,
    database: u16,
    priority: i16,
    /// No row comes before the start; false if the entry was added while the entries were not
    /// complete, until the section is read.
    exact: bool,
}

/// The state of a database's entries, which is read without the lock.
struct Database {
    /// The number of changes, which each change writes last.
    changes: AtomicU64,
    /// The last change that lowered or added an entry.
    lowered: AtomicU64,
    /// The last change that was lost, and how often changes were lost.
    lost: AtomicU64,
    losses: AtomicU64,
    /// Entries that were last lowered before this change are discarded.
    void: AtomicU64,
    /// Sections without an entry have no rows.
    complete: AtomicBool,
    /// When all sections were last read, there was no room for the entries of some.
    is_overfull: AtomicBool,
    /// The ends of the list: the entry that was changed last, and the one changed longest ago.
    newest: AtomicU32,
    oldest: AtomicU32,
    count: AtomicU32,
    /// Where the last repair stopped. The sign bit of the lane is inverted, so that zero comes
    /// before all lanes.
    repaired_lane: AtomicI64,
    repaired_priority: AtomicI64,
    /// The entry at which the next repair begins to check for remaining rows.
    repaired_entry: AtomicU32,
    /// The number of skips of this database.
    skips: AtomicU32,
}

impl Database {
    /// Notes that the changes up to this one are lost.
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

    /// Discards all entries. The caller has the lock.
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
    /// Entries from this one on have never been used.
    unused: u32,
    /// The first of the freed entries.
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
        // A random seed, so that no producer can choose names that share a bucket.
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
        // SAFETY: no process writes while the lock is shared.
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

/// The state of a database's entries before a claim took its snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanesState {
    /// The number of changes.
    pub(crate) changes: u64,
    /// Entries that were last lowered before this change are discarded.
    pub(crate) void: u64,
    losses: u64,
    /// When all sections were last read, there was no room for the entries of some.
    pub(crate) is_overfull: bool,
}

/// Returns the state, to be read before the snapshot is taken; `None` without shared memory, or if
/// this database has no bell.
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

/// Sections that were lowered after a change.
pub(crate) struct Lowered {
    pub(crate) rows: Vec<(Section, i64)>,
    /// The last change that `rows` contain.
    pub(crate) last: u64,
    /// None of these changes was lost.
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
    // A change writes one of these two before it is counted, so none in `state` is overlooked.
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
        // An entry that was removed during the read may have been one of these.
        let whole = memory.read(|_| shared.lost() <= change);
        Lowered { rows, last, whole }
    })
}

/// Returns all sections that have rows; `None` if the entries are not complete.
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

/// Returns the sections that were lowered after a change (for 0, all), in the order in memory, and
/// the last change that they contain.
fn in_order(memory: &Memory, database: usize, change: u64) -> (Vec<(Section, i64)>, u64) {
    let shared = &memory.databases[database];
    // Entries that are lowered during the read are read again by a caller that continues there.
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

/// The state of a section, as a claim reads it.
pub(crate) enum Peek {
    /// No row comes before this job.
    From(i64),
    /// No rows wait.
    Empty,
    /// Unknown here: the session uses its own list.
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

/// The first row of a section that a claim has read; `None` if it is empty.
pub(crate) struct Finding {
    pub(crate) section: Section,
    pub(crate) first: Option<i64>,
}

/// Raises starts to the first rows that were found, and frees the entries of empty sections; if a
/// section has changed since `state` was read, its start is only lowered. Returns for each finding
/// whether it still holds. `whole` means that the session knew all sections with rows.
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

/// Lowers starts to rows that have become claimable: the first job of each section, after the
/// commit.
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

/// Adds sections that were read from the index after `state` was read, each with its first row;
/// `all` means that no others exist. Stops if there is no room.
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
            // A change that was lost meanwhile may be missing from these rows.
            if shared.losses.load(Ordering::SeqCst) == state.losses {
                shared.complete.store(true, Ordering::SeqCst);
                shared.is_overfull.store(false, Ordering::SeqCst);
            }
        });
    }
}

/// Discards the entries of this database.
pub(super) fn forget() {
    if let Some((memory, database)) = own() {
        memory.write(|_| memory.databases[database].discard_all());
    }
}

/// Frees the entries of the database with this number. For a session that is still connected to it
/// their changes are lost.
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
}

impl Section {
    /// Sorts before all sections. If a lane has this number, a chance of one in 2^64, the repair
    /// does not read its priority 0.
    pub(crate) const BEFORE_ALL: Self = Self {
        lane: i64::MIN,
        priority: 0,
    };
}

#[cfg(test)]
mod tests;
