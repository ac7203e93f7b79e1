//! Lanes: which have rows that a claim may take, and where those rows begin.
//!
//! Words: a *section* is one priority of one lane, a range of the index `work_queue_ready` in order of age. A section has
//! a *place* here while rows may wait in it; its *bound* says that no row waits there whose job comes before it, where it
//! is *exact*. Rows that were claimed leave dead entries in the index, at the head of the section, until a vacuum; a claim
//! that begins at the bound does not read them (0.06 µs each, all of them at every claim).
//!
//! What makes a row claimable is a *change*; each database counts its own. The places of a database are a list, the last
//! one changed first: a log of what became claimable, in which each section stands once. A session keeps a list of its
//! own of what has rows, and reads here what was changed since. A database has as many places as leave room for others;
//! beyond that its oldest goes, and the last change of that place is *lost*.
//!
//! Holds: who has a list of everything up to a change that is not before the last one lost, and reads what was lowered
//! since, misses no row. Who has not reads the sections from the index. What was before the server's start, or before a
//! statement written by hand, is lost like any other.
//! - An exact bound is never above a row that has committed, apart from what the look again forgives (`look_again`). It is
//!   raised to the first row that a claim's snapshot sees, rows included that others have locked or are deleting, and a
//!   place is freed when it sees none; never by a transaction that has taken rows itself.
//! - Who makes a row claimable lowers the bound when the transaction has committed, however late, and makes the place if
//!   there is none; the place keeps the number of the change. Whoever read a lower number of changes before its snapshot
//!   neither raises the bound nor frees the place; nor does it believe that a section without a place is empty when what
//!   is lost is not before that number.
//! - The places are *complete* when a session has read all sections from the index, they all have places, and nothing was
//!   lost since it began: then a section without a place has no rows, and a new session need not read the index.
//!
//! The lock is held for a few places at a time; what takes long (a new session's reading of all, the places of a database
//! that is gone) goes by places in their order in memory and lets it go between.
//!
//! Cost: 56 bytes a place. A database takes another only while it has fewer than twice as many as are free.

use super::available;
use super::bell::{BELLS_AT_MOST, bell};
use pgrx::pg_sys;
use pgrx::{PgLwLock, PgSharedMemoryInitialization};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

const PLACES: usize = 131_072;
const BUCKETS: usize = PLACES;
/// Most places that are looked at or changed while the lock is held.
const AT_ONCE: usize = 256;
/// Most changes that are read one after the other in the list; beyond that all places are read in their order in memory.
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
    /// No row comes before the bound. Where not all places were known when it was made, older rows may.
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
    /// Where the last look again stopped; the lane with its sign turned, so that zero comes before all.
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
struct Memory {
    databases: [Database; BELLS_AT_MOST],
    places: UnsafeCell<Places>,
}

/// The memory, found by the postmaster and inherited by every process.
struct Found(AtomicPtr<Memory>);

static MEMORY: Found = Found(AtomicPtr::new(std::ptr::null_mut()));
// SAFETY: no other lock has this name.
static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax lanes") };

impl PgSharedMemoryInitialization for Found {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: called from the hook.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<Memory>()) }
    }

    unsafe fn on_shmem_startup(&'static self, _value: ()) {
        let mut found = false;
        // SAFETY: called from the hook in the postmaster, which is alone; all zero is a valid, empty memory.
        unsafe {
            let memory = pg_sys::ShmemInitStruct(
                c"trax places of lanes".as_ptr(),
                size_of::<Memory>(),
                &raw mut found,
            )
            .cast::<Memory>();
            if !found {
                memory.write_bytes(0, 1);
                // Without it a producer could choose names that share a bucket; any number does.
                let places = (*memory).places.get();
                pg_sys::pg_strong_random((&raw mut (*places).seed).cast(), size_of::<u64>());
            }
            self.0.store(memory, Ordering::Relaxed);
        }
    }
}

/// Asks for the memory; for `_PG_init` while preloading.
#[allow(
    unexpected_cfgs,
    reason = "pgrx's macro also names server versions before 15"
)]
pub(super) fn request() {
    use pgrx::{pg_guard, pg_shmem_init};
    pg_shmem_init!(MEMORY = ());
    pg_shmem_init!(LOCK = 0);
}

fn memory() -> Option<&'static Memory> {
    if !available() {
        return None;
    }
    // SAFETY: null or the memory, which lives as long as the server.
    unsafe { MEMORY.0.load(Ordering::Relaxed).as_ref() }
}

/// The memory and the number of this process's database in it.
fn own() -> Option<(&'static Memory, usize)> {
    Some((memory()?, bell()?.number()))
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

impl Places {
    fn bucket(&self, database: usize, section: Section) -> usize {
        let mixed = (section.lane as u64 ^ self.seed)
            .wrapping_add((database as u64) << 5 | section.priority as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as usize % BUCKETS
    }

    fn at(&mut self, number: u32) -> &mut Place {
        &mut self.places[number as usize - 1]
    }

    fn find(&self, database: usize, section: Section) -> Option<u32> {
        let mut number = self.buckets[self.bucket(database, section)];
        while number != NOWHERE {
            let place = &self.places[number as usize - 1];
            if place.lane == section.lane
                && place.priority == section.priority
                && usize::from(place.database) == database
            {
                return Some(number);
            }
            number = place.next_in_bucket;
        }
        None
    }

    fn has_room(&self, head: &Database) -> bool {
        head.count.load(Ordering::Relaxed) < (PLACES as u32 - self.taken).saturating_mul(2)
    }

    /// The place of a section, apart from one that counts for nothing.
    fn valid(&self, head: &Database, database: usize, section: Section) -> Option<u32> {
        let number = self.find(database, section)?;
        (!head.is_void(&self.places[number as usize - 1])).then_some(number)
    }

    /// A new place for a section that has none, in its bucket and in no list. There must be room.
    fn add(&mut self, head: &Database, database: usize, section: Section) -> u32 {
        let number = if self.free != NOWHERE {
            let number = self.free;
            self.free = self.at(number).next_in_bucket;
            number
        } else {
            self.unused += 1;
            self.unused
        };
        self.taken += 1;
        head.count.fetch_add(1, Ordering::Relaxed);
        let bucket = self.bucket(database, section);
        *self.at(number) = Place {
            lane: section.lane,
            bound: i64::MAX,
            changed: 0,
            lowered: 0,
            next_in_bucket: self.buckets[bucket],
            newer: NOWHERE,
            older: NOWHERE,
            database: database as u16,
            priority: section.priority,
            exact: false,
        };
        self.buckets[bucket] = number;
        number
    }

    /// Puts a place at the new end of the list, or at the old one.
    fn link(&mut self, head: &Database, number: u32, as_newest: bool) {
        let (newest, oldest) = (&head.newest, &head.oldest);
        if as_newest {
            let next = newest.swap(number, Ordering::Relaxed);
            self.at(number).older = next;
            self.at(number).newer = NOWHERE;
            match next {
                NOWHERE => oldest.store(number, Ordering::Relaxed),
                next => self.at(next).newer = number,
            }
        } else {
            let next = oldest.swap(number, Ordering::Relaxed);
            self.at(number).newer = next;
            self.at(number).older = NOWHERE;
            match next {
                NOWHERE => newest.store(number, Ordering::Relaxed),
                next => self.at(next).older = number,
            }
        }
    }

    fn unlink(&mut self, head: &Database, number: u32) {
        let Place { newer, older, .. } = *self.at(number);
        match newer {
            NOWHERE => head.newest.store(older, Ordering::Relaxed),
            newer => self.at(newer).older = older,
        }
        match older {
            NOWHERE => head.oldest.store(newer, Ordering::Relaxed),
            older => self.at(older).newer = newer,
        }
    }

    /// A row of a section has become claimable: the next change of the database.
    fn lower(&mut self, head: &Database, database: usize, row: (Section, i64)) {
        let change = head.next();
        let (section, bound) = row;
        let exact = head.is_complete();
        let (number, is_news) = match self.find(database, section) {
            Some(number) => {
                self.unlink(head, number);
                let place = self.at(number);
                let begins = head.is_void(place);
                if begins {
                    place.exact = exact;
                }
                (number, begins || bound < place.bound)
            }
            None => {
                if !self.make_room(head, database) {
                    head.lose(change);
                    head.changes.store(change, Ordering::SeqCst);
                    return;
                }
                let number = self.add(head, database, section);
                self.at(number).exact = exact;
                (number, true)
            }
        };
        if is_news {
            self.at(number).bound = bound;
            self.at(number).lowered = change;
            head.lowered.store(change, Ordering::SeqCst);
        }
        self.at(number).changed = change;
        self.link(head, number, true);
        head.changes.store(change, Ordering::SeqCst);
    }

    /// Whether there is a place for one more section, for which the oldest may go; two, while a database has more than
    /// its share.
    fn make_room(&mut self, head: &Database, database: usize) -> bool {
        if self.has_room(head) {
            return true;
        }
        let mut made = false;
        for _ in 0..2 {
            let oldest = head.oldest.load(Ordering::Relaxed);
            if oldest != NOWHERE {
                head.lose(self.at(oldest).changed);
                self.remove(head, database, oldest);
                made = true;
            }
        }
        made
    }

    /// A section has been read from the index, with this first row, after so many changes: news to nobody who knew all before, but
    /// where that row came as a surprise. False when there is no room for a place.
    fn note(&mut self, head: &Database, database: usize, row: (Section, i64), since: u64) -> bool {
        let (section, first) = row;
        let lost = head.lost();
        if let Some(number) = self.valid(head, database, section) {
            let place = self.at(number);
            if place.exact && first < place.bound {
                self.lower(head, database, row);
            } else if !place.exact {
                place.bound = first.min(place.bound);
                place.exact = lost <= since;
            }
            return true;
        }
        if head.is_complete() {
            self.lower(head, database, row);
            return true;
        }
        let number = match self.find(database, section) {
            Some(void) => {
                self.unlink(head, void);
                void
            }
            None if self.has_room(head) => self.add(head, database, section),
            None => return false,
        };
        let place = self.at(number);
        place.bound = first;
        place.exact = lost <= since;
        // What is lost may have touched it.
        place.changed = lost;
        place.lowered = lost;
        self.link(head, number, false);
        true
    }

    fn remove(&mut self, head: &Database, database: usize, number: u32) {
        self.unlink(head, number);
        let Place { lane, priority, .. } = *self.at(number);
        let bucket = self.bucket(database, Section { lane, priority });
        let next = self.at(number).next_in_bucket;
        if self.buckets[bucket] == number {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.at(before).next_in_bucket != number {
                before = self.at(before).next_in_bucket;
            }
            self.at(before).next_in_bucket = next;
        }
        self.at(number).next_in_bucket = self.free;
        self.at(number).database = NOBODY;
        self.free = number;
        self.taken -= 1;
        head.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// The sections lowered after a change, the last changed first; `None` when too much was changed since.
    fn since(&self, head: &Database, change: u64) -> Option<Vec<(Section, i64)>> {
        let mut rows = Vec::new();
        let mut number = head.newest.load(Ordering::Relaxed);
        for _ in 0..FOLLOW_AT_MOST {
            if number == NOWHERE {
                return Some(rows);
            }
            let place = &self.places[number as usize - 1];
            if place.changed <= change {
                return Some(rows);
            }
            if place.lowered > change {
                rows.push((place.section(), place.bound));
            }
            number = place.older;
        }
        None
    }

    /// The places of a database among those from one on, in their order in memory, and where to go on.
    fn part(&self, database: usize, from: usize) -> (impl Iterator<Item = &Place>, Option<usize>) {
        let end = (from + AT_ONCE * 4).min(self.unused as usize);
        let part = self.places[from.min(end)..end].iter();
        (
            part.filter(move |place| usize::from(place.database) == database),
            (end < self.unused as usize).then_some(end),
        )
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

/// The sections lowered after a change, or all for 0, in their order in memory, and up to which change these are all but
/// what was lost.
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

/// Raises bounds to what has been found, and frees places of sections without rows; of sections that have changed since
/// `state` was read only lowers them. Gives for each finding whether it holds. `whole` says that the session knew of all
/// rows that there were.
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

impl Places {
    fn believe(
        &mut self,
        head: &Database,
        database: usize,
        finding: &Finding,
        state: &LanesState,
        whole: bool,
    ) -> bool {
        if head.void.load(Ordering::SeqCst) > state.changes {
            return false;
        }
        let Some(number) = self.valid(head, database, finding.section) else {
            // Nobody needs what is void and has no rows.
            if finding.first.is_none()
                && let Some(void) = self.find(database, finding.section)
            {
                self.remove(head, database, void);
            }
            return head.lost() <= state.changes;
        };
        let place = self.at(number);
        let holds = place.changed <= state.changes;
        match finding.first {
            Some(first) if holds && place.exact => place.bound = place.bound.max(first),
            Some(first) if holds && whole => {
                place.bound = first;
                place.exact = true;
            }
            Some(first) if !holds && first < place.bound => {
                self.lower(head, database, (finding.section, first));
            }
            None if holds && (place.exact || whole) => self.remove(head, database, number),
            _ => {}
        }
        holds
    }
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

/// Notes sections that were read from the index after `state` was read, with their first rows; with `all` these are all
/// there are. Stops when there is no room.
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

/// Frees the places of the database with this number. Were somebody connected to it, those would be lost like others.
pub(super) fn free(database: usize) {
    let Some(memory) = memory() else { return };
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

/// The next sections whose places are to be looked at again: nobody may want what they had.
pub(crate) fn to_sweep() -> Vec<Section> {
    let Some((memory, database)) = own() else {
        return Vec::new();
    };
    let head = &memory.databases[database];
    memory.read(|places| {
        let mut at = head.swept.load(Ordering::Relaxed) as usize;
        let end = (at + AT_ONCE * 4).min(places.unused as usize);
        let mut sections = Vec::new();
        while at < end && sections.len() < SWEEP_AT_MOST {
            let place = &places.places[at];
            if usize::from(place.database) == database {
                sections.push(place.section());
            }
            at += 1;
        }
        let next = if at < places.unused as usize { at } else { 0 };
        head.swept.store(next as u32, Ordering::Relaxed);
        sections
    })
}

/// The section after which to look again, if it is time to; `Some` for one of those who ask at once.
pub(crate) fn look_again(now: i64) -> Option<Section> {
    let (memory, database) = own()?;
    let head = &memory.databases[database];
    let due = head.look_at.load(Ordering::Relaxed);
    // A clock that was set back must not make it wait for the old time.
    if due > now && due <= now + LONGEST_PAUSE_MICROS {
        return None;
    }
    let soon = now + LOOK_AGAIN_MICROS;
    head.look_at
        .compare_exchange(due, soon, Ordering::Relaxed, Ordering::Relaxed)
        .ok()?;
    Some(Section {
        lane: head.looked_lane.load(Ordering::Relaxed) ^ i64::MIN,
        priority: head.looked_priority.load(Ordering::Relaxed) as i16,
    })
}

/// Says where a look again stopped, `None` at the end, and how long it took in microseconds.
pub(crate) fn looked_again(stopped: Option<Section>, now: i64, took: i64) {
    let Some((memory, database)) = own() else {
        return;
    };
    let head = &memory.databases[database];
    let pause = took
        .saturating_mul(LOOK_AGAIN_SHARE)
        .min(LONGEST_PAUSE_MICROS);
    let pause = if stopped.is_none() {
        pause.max(LOOK_AGAIN_MICROS)
    } else {
        pause
    };
    let next = stopped.unwrap_or(Section::BEFORE_ALL);
    head.looked_lane
        .store(next.lane ^ i64::MIN, Ordering::Relaxed);
    head.looked_priority
        .store(i64::from(next.priority), Ordering::Relaxed);
    head.look_at.store(now + pause, Ordering::Relaxed);
}

impl Section {
    /// Comes before all sections of lanes. No lane has this number but by a chance of one in 2^64, and then the rows of
    /// its priority 0 only are not looked at again.
    pub(crate) const BEFORE_ALL: Self = Self {
        lane: i64::MIN,
        priority: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::{Database, Finding, LanesState, Memory, PLACES, Places, Section};
    use std::sync::atomic::Ordering;

    fn empty() -> Box<Memory> {
        // SAFETY: all zero is a valid, empty memory.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// The places of a memory that nobody else has.
    #[allow(clippy::mut_from_ref, reason = "as the lock lets one have them")]
    fn places(memory: &Memory) -> &mut Places {
        // SAFETY: a test is alone with it, and uses one at a time.
        unsafe { &mut *memory.places.get() }
    }

    fn section(lane: i64) -> Section {
        Section { lane, priority: 3 }
    }

    fn state(head: &Database) -> LanesState {
        LanesState {
            changes: head.changes.load(Ordering::SeqCst),
            void: head.void.load(Ordering::SeqCst),
            losses: head.losses.load(Ordering::SeqCst),
            crowded: false,
        }
    }

    fn finding(lane: i64, first: Option<i64>) -> Finding {
        let section = section(lane);
        Finding { section, first }
    }

    #[test]
    fn places_are_found_until_they_are_removed_and_then_used_again() {
        let memory = empty();
        let places = places(&memory);
        for round in 0..3 {
            for lane in 0..1000 {
                let (database, head) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
                places.lower(head, database, (section(lane), 10 + lane));
            }
            assert_eq!(places.taken, 1000, "round {round}");
            assert!(places.find(1, section(2)).is_none(), "of another database");
            for lane in 0..1000 {
                let (database, head) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
                let number = places.find(database, section(lane)).expect("it is there");
                assert_eq!(places.at(number).bound, 10 + lane);
                places.remove(head, database, number);
                assert!(places.find(database, section(lane)).is_none());
            }
            assert_eq!(places.taken, 0);
            assert!(places.unused <= 1000);
            assert_eq!(memory.databases[0].newest.load(Ordering::Relaxed), 0);
            assert_eq!(memory.databases[0].oldest.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn what_was_changed_last_comes_first_and_what_was_not_lowered_does_not_come() {
        let memory = empty();
        let head = &memory.databases[0];
        let places = places(&memory);
        for (lane, bound) in [(1, 50), (2, 50), (3, 50), (1, 60), (2, 40)] {
            places.lower(head, 0, (section(lane), bound));
        }
        let since = |change| -> Vec<(i64, i64)> {
            let rows = places.since(head, change).expect("few").into_iter();
            rows.map(|(section, bound)| (section.lane, bound)).collect()
        };
        assert_eq!(since(0), [(2, 40), (1, 50), (3, 50)]);
        assert_eq!(since(3), [(2, 40)]);
        assert_eq!(since(5), []);
    }

    #[test]
    fn a_database_with_any_number_of_lanes_leaves_places_for_others() {
        let memory = empty();
        let places = places(&memory);
        let mut counts = Vec::new();
        for (database, head) in memory.databases.iter().enumerate().take(4) {
            for lane in 0..PLACES as i64 {
                places.lower(head, database, (section(lane), 1));
            }
            counts.push(head.count.load(Ordering::Relaxed));
            let last = places.find(database, section(PLACES as i64 - 1));
            assert!(last.is_some(), "the last has its place, the first has not");
            assert!(places.find(database, section(0)).is_none());
            // Who knew everything before the oldest that is left misses nothing.
            let lost = head.lost();
            let number = head.oldest.load(Ordering::Relaxed);
            assert!(lost < places.at(number).changed);
            assert_eq!(lost, PLACES as u64 - u64::from(counts[database]));
        }
        assert!(counts[0] > 80_000 && counts[3] > 3_000, "{counts:?}");
    }

    #[test]
    fn a_place_made_while_not_all_are_known_hides_no_older_row() {
        let memory = empty();
        let head = &memory.databases[0];
        let places = places(&memory);
        let before = state(head);
        places.lower(head, 0, (section(1), 100));
        let number = places.find(0, section(1)).expect("it is there");
        assert!(!places.at(number).exact, "an older row may wait");
        // Somebody who saw less than there was does not make it exact, who read all does.
        assert!(!places.believe(head, 0, &finding(1, None), &before, true));
        assert!(places.believe(head, 0, &finding(1, Some(50)), &state(head), false));
        assert!(!places.at(number).exact);
        assert!(places.note(
            head,
            0,
            (section(1), 50),
            head.changes.load(Ordering::SeqCst)
        ));
        assert!(places.at(number).exact);
        assert_eq!(places.at(number).bound, 50);
    }

    #[test]
    fn what_is_void_counts_for_nothing() {
        let memory = empty();
        let head = &memory.databases[0];
        let places = places(&memory);
        places.lower(head, 0, (section(1), 100));
        let before = state(head);
        head.make_void();
        assert!(places.valid(head, 0, section(1)).is_none());
        assert!(!places.believe(head, 0, &finding(1, None), &before, true));
        assert!(!places.believe(head, 0, &finding(2, None), &before, true));
        let now = state(head);
        assert!(head.lost() > before.changes && head.lost() <= now.changes);
        assert!(places.note(head, 0, (section(1), 7), now.changes));
        let number = places.valid(head, 0, section(1)).expect("it is noted");
        assert!(places.at(number).exact);
        assert_eq!(places.since(head, now.changes).expect("few"), []);
    }

    #[test]
    fn an_empty_section_is_not_believed_to_be_so_when_its_place_was_lost() {
        let memory = empty();
        let head = &memory.databases[0];
        let places = places(&memory);
        places.lower(head, 0, (section(1), 100));
        let before = state(head);
        places.lower(head, 0, (section(1), 101));
        let oldest = head.oldest.load(Ordering::Relaxed);
        head.lose(places.at(oldest).changed);
        places.remove(head, 0, oldest);
        assert!(!places.believe(head, 0, &finding(1, None), &before, true));
        assert!(places.believe(head, 0, &finding(1, None), &state(head), true));
    }
}
