//! Lanes: which have rows that a claim may take, and where those rows begin.
//!
//! Words: a *section* is one priority of one lane, a range of the index `work_queue_ready` in order
//! of age. A section has a *place* here while rows may wait in it; its *bound* says that no row
//! waits there whose job comes before it, where it is *exact*. Rows that were claimed leave dead
//! entries in the index, at the head of the section, until a vacuum; a claim that begins at the
//! bound does not read them (0.06 µs each, all of them at every claim).
//!
//! What makes a row claimable is a *change*; each database counts its own. The places of a database
//! are a list, the last one changed first: a log of what became claimable, in which each section
//! stands once. A session keeps a list of its own of what has rows, and reads here what was changed
//! since. A database has as many places as leave room for others; beyond that its oldest goes, and
//! the last change of that place is *lost*.
//!
//! Holds: who has a list of everything up to a change that is not before the last one lost, and
//! reads what was lowered since, misses no row. Who has not reads the sections from the index. What
//! was before the server's start, or before a statement written by hand, is lost like any other.
//! - An exact bound is never above a row that has committed, apart from what the look again
//!   forgives (`look_again`). It is raised to the first row that a claim's snapshot sees, rows
//!   included that others have locked or are deleting, and a place is freed when it sees none;
//!   never by a transaction that has taken rows itself.
//! - Who makes a row claimable lowers the bound when the transaction has committed, however late,
//!   and makes the place if there is none; the place keeps the number of the change. Whoever read a
//!   lower number of changes before its snapshot neither raises the bound nor frees the place; nor
//!   does it believe that a section without a place is empty when what is lost is not before that
//!   number.
//! - The places are *complete* when a session has read all sections from the index, they all have
//!   places, and nothing was lost since it began: then a section without a place has no rows, and a
//!   new session need not read the index.
//!
//! The lock is held for a few places at a time; what takes long (a new session's reading of all,
//! the places of a database that is gone) goes by places in their order in memory and lets it go
//! between.
//!
//! Cost: 56 bytes a place. A database takes another only while it has fewer than twice as many as
//! are free.

mod look_again;
mod places;

use super::area::{Area, zero};
use super::bell::{BELLS_AT_MOST, bell};
pub(crate) use look_again::{look_again, looked_again, to_sweep};
use pgrx::PgLwLock;
use pgrx::pg_sys;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

const PLACES: usize = 131_072;
const BUCKETS: usize = PLACES;
/// Most places that are looked at or changed while the lock is held.
const AT_ONCE: usize = 256;
/// Most changes that are read one after the other in the list; beyond that all places are read in
/// their order in memory.
const FOLLOW_AT_MOST: usize = 2048;
/// Most sections whose places are looked at again at once, whether they still have rows.
const SWEEP_AT_MOST: usize = 32;
/// How often the sections are looked at again, at most and at least.
const LOOK_AGAIN_MICROS: i64 = 1_000_000;
const LONGEST_PAUSE_MICROS: i64 = 60_000_000;
/// The share of the time that this may take, as its inverse.
const LOOK_AGAIN_SHARE: i64 = 100;
/// No place, where one is named by its number and one.
const NOWHERE: u32 = 0;
/// The database of a place that nobody has.
const NOBODY: u16 = u16::MAX;

/// One priority of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Section {
    pub(crate) lane: i64,
    pub(crate) priority: i16,
}

#[derive(Clone, Copy)]
struct Place {
    lane: i64,
    bound: i64,
    /// The last change that touched it.
    changed: u64,
    /// The last change that lowered its bound, or made it.
    lowered: u64,
    next_in_bucket: u32,
    newer: u32,
    older: u32,
    database: u16,
    priority: i16,
    /// No row comes before the bound. Where not all places were known when it was made, older rows
    /// may.
    exact: bool,
}

/// What can be read of a database's places without the lock; written under it.
struct Database {
    /// How many changes there were: written last of all that a change writes.
    changes: AtomicU64,
    /// The last change that lowered or made a place.
    lowered: AtomicU64,
    /// The last change of which something may be missing here, and how often something was lost.
    lost: AtomicU64,
    losses: AtomicU64,
    /// What was lowered before this change counts for nothing.
    void: AtomicU64,
    /// Sections without a place have no rows.
    complete: AtomicBool,
    /// When all sections were last read, they did not all get places.
    crowded: AtomicBool,
    /// The place that was changed last, and that whose last change is the oldest.
    newest: AtomicU32,
    oldest: AtomicU32,
    count: AtomicU32,
    look_at: AtomicI64,
    /// Where the last look again stopped; the lane with its sign turned, so that zero comes before
    /// all.
    looked_lane: AtomicI64,
    looked_priority: AtomicI64,
    /// Up to which place it looked whether there are still rows.
    swept: AtomicU32,
}

impl Database {
    /// What is known up to a change may be missing here.
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

    /// The number of the next change.
    fn next(&self) -> u64 {
        self.changes.load(Ordering::SeqCst) + 1
    }

    /// All that was known is void. The caller has the lock.
    fn make_void(&self) {
        let change = self.next();
        self.void.store(change, Ordering::SeqCst);
        self.lose(change);
        self.changes.store(change, Ordering::SeqCst);
    }

    fn is_void(&self, place: &Place) -> bool {
        place.lowered < self.void.load(Ordering::SeqCst)
    }
}

/// All zero is empty.
struct Places {
    seed: u64,
    /// Places from here on were never used.
    unused: u32,
    /// The first of those that were freed.
    free: u32,
    taken: u32,
    buckets: [u32; BUCKETS],
    places: [Place; PLACES],
}

#[repr(C)]
pub(in crate::memory) struct Memory {
    databases: [Database; BELLS_AT_MOST],
    places: UnsafeCell<Places>,
}

pub(in crate::memory) static LANES: Area<Memory> =
    Area::new(c"trax places of lanes", size_of::<Memory>, begin);
// SAFETY: no other lock has this name.
pub(in crate::memory) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax lanes") };

unsafe fn begin(memory: *mut Memory) {
    // SAFETY: passed on to the caller: there is room for it; all zero is valid, and empty.
    unsafe {
        zero(memory);
        // Without it a producer could choose names that share a bucket; any number does.
        let places = (*memory).places.get();
        pg_sys::pg_strong_random((&raw mut (*places).seed).cast(), size_of::<u64>());
    }
}

/// The memory and the number of this process's database in it.
fn own() -> Option<(&'static Memory, usize)> {
    Some((LANES.get()?, bell()?.number()))
}

impl Memory {
    fn read<T>(&self, work: impl FnOnce(&Places) -> T) -> T {
        let _lock = LOCK.share();
        // SAFETY: nobody writes while the lock is shared.
        work(unsafe { &*self.places.get() })
    }

    fn write<T>(&self, work: impl FnOnce(&mut Places) -> T) -> T {
        let _lock = LOCK.exclusive();
        // SAFETY: the lock is exclusive.
        work(unsafe { &mut *self.places.get() })
    }
}

impl Place {
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
    /// When all sections were last read there were more than have places.
    pub(crate) crowded: bool,
}

/// To be read before the snapshot is taken; `None` where there is no place for this database.
pub(crate) fn lanes() -> Option<LanesState> {
    let (memory, database) = own()?;
    let head = &memory.databases[database];
    Some(LanesState {
        changes: head.changes.load(Ordering::SeqCst),
        void: head.void.load(Ordering::SeqCst),
        losses: head.losses.load(Ordering::SeqCst),
        crowded: head.crowded.load(Ordering::SeqCst),
    })
}

/// The sections that were lowered after a change.
pub(crate) struct Lowered {
    pub(crate) rows: Vec<(Section, i64)>,
    /// Up to which change that says what there was.
    pub(crate) last: u64,
    /// Nothing is missing for who knew everything up to that change.
    pub(crate) whole: bool,
}

/// The sections that were lowered after a change.
pub(crate) fn lowered_since(state: &LanesState, change: u64) -> Lowered {
    let nothing = |whole| Lowered {
        rows: Vec::new(),
        last: state.changes.max(change),
        whole,
    };
    let Some((memory, database)) = own() else {
        return nothing(false);
    };
    let head = &memory.databases[database];
    // What was lost was lowered before; a change is counted when all else of it is written.
    if head.lowered.load(Ordering::SeqCst) <= change && head.lost() <= change {
        return nothing(true);
    }
    let few = memory.read(|places| {
        Some(Lowered {
            rows: places.since(head, change)?,
            last: head.changes.load(Ordering::SeqCst),
            whole: head.lost() <= change,
        })
    });
    few.unwrap_or_else(|| {
        let (rows, last) = in_order(memory, database, change);
        // What went while they were read may have been among them.
        let whole = memory.read(|_| head.lost() <= change);
        Lowered { rows, last, whole }
    })
}

/// All sections that have rows; `None` when they do not all have places.
pub(crate) fn all() -> Option<Lowered> {
    let (memory, database) = own()?;
    let head = &memory.databases[database];
    let losses = head.losses.load(Ordering::SeqCst);
    if !head.is_complete() {
        return None;
    }
    let (rows, last) = in_order(memory, database, 0);
    let whole = memory.read(|_| head.losses.load(Ordering::SeqCst) == losses);
    whole.then_some(Lowered { rows, last, whole })
}

/// The sections lowered after a change, or all for 0, in their order in memory, and up to which
/// change these are all but what was lost.
fn in_order(memory: &Memory, database: usize, change: u64) -> (Vec<(Section, i64)>, u64) {
    let head = &memory.databases[database];
    // What is lowered while they are read is read again by who goes on from there.
    let last = memory.read(|_| head.changes.load(Ordering::SeqCst));
    let mut rows = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        from = memory.read(|places| {
            let (part, next) = places.part(database, at);
            let part = part.filter(|place| !head.is_void(place));
            let part = part.filter(|place| change == 0 || place.lowered > change);
            rows.extend(part.map(|place| (place.section(), place.bound)));
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
    let head = &memory.databases[database];
    memory.read(|places| match places.valid(head, database, section) {
        Some(number) => match places.places[number as usize - 1] {
            Place {
                bound, exact: true, ..
            } => Peek::From(bound),
            _ => Peek::Unknown,
        },
        None if head.is_complete() => Peek::Empty,
        None => Peek::Unknown,
    })
}

/// What a claim has found out about a section: its first row.
pub(crate) struct Finding {
    pub(crate) section: Section,
    pub(crate) first: Option<i64>,
}

/// Raises bounds to what has been found, and frees places of sections without rows; of sections
/// that have changed since `state` was read only lowers them. Returns for each finding whether it
/// holds. `whole` says that the session knew of all rows that there were.
pub(crate) fn raise(state: &LanesState, findings: &[Finding], whole: bool) -> Vec<bool> {
    let Some((memory, database)) = own().filter(|_| !findings.is_empty()) else {
        return vec![false; findings.len()];
    };
    let head = &memory.databases[database];
    let mut holds = Vec::with_capacity(findings.len());
    for findings in findings.chunks(AT_ONCE) {
        memory.write(|places| {
            let believed = findings
                .iter()
                .map(|finding| places.believe(head, database, finding, state, whole));
            holds.extend(believed);
        });
    }
    holds
}

/// Lowers bounds to rows that have become claimable: the first job of each section.
pub(crate) fn lower(rows: impl Iterator<Item = (Section, i64)>) {
    let Some((memory, database)) = own() else {
        return;
    };
    let head = &memory.databases[database];
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        memory.write(|places| {
            for row in rows.by_ref().take(AT_ONCE) {
                places.lower(head, database, row);
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
    let head = &memory.databases[database];
    for rows in rows.chunks(AT_ONCE) {
        let fit = memory.write(|places| {
            rows.iter().all(|row| {
                let is_here = places.valid(head, database, row.0).is_some();
                let is_wanted = is_here || all || head.is_complete();
                !is_wanted || places.note(head, database, *row, state.changes)
            })
        });
        if !fit {
            if all {
                head.crowded.store(true, Ordering::SeqCst);
            }
            return;
        }
    }
    if all {
        memory.write(|_| {
            // What was lost meanwhile may be in none of these rows.
            if head.losses.load(Ordering::SeqCst) == state.losses {
                head.complete.store(true, Ordering::SeqCst);
                head.crowded.store(false, Ordering::SeqCst);
            }
        });
    }
}

/// Knows nothing any more of the sections of this database.
pub(super) fn forget() {
    if let Some((memory, database)) = own() {
        memory.write(|_| memory.databases[database].make_void());
    }
}

/// Frees the places of the database with this number. Were somebody connected to it, those would be
/// lost like others.
pub(super) fn free(database: usize) {
    let Some(memory) = LANES.get() else { return };
    let head = &memory.databases[database];
    memory.write(|_| head.make_void());
    while memory.write(|places| {
        for _ in 0..AT_ONCE {
            match head.oldest.load(Ordering::Relaxed) {
                NOWHERE => return false,
                oldest => {
                    head.lose(places.at(oldest).changed);
                    places.remove(head, database, oldest);
                }
            }
        }
        true
    }) {}
    head.look_at.store(0, Ordering::Relaxed);
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
