//! Lanes: which have rows that a claim may take, and where those rows begin.
//!
//! Words: a *section* is one priority of one lane, a range of the index `work_queue_ready` in order of age. A section has
//! a *place* here while rows may wait in it; its *bound* says that no row waits there whose job comes before it. Rows that
//! were claimed leave dead entries in the index, at the head of the section, until a vacuum; a claim that begins at the
//! bound does not read them (0.06 µs each, all of them at every claim).
//!
//! Holds: a bound is never above a row that has committed, apart from what the look again forgives (`look_again`).
//! - A bound is raised to the first row that a claim's snapshot sees, rows included that others have locked or are
//!   deleting, and a place is freed when it sees none; never by a transaction that has taken rows itself.
//! - Who makes a row claimable lowers the bound when the transaction has committed, however late, and makes the place if
//!   there is none; the place keeps the number of the *change*. Whoever read a lower number of changes before its
//!   snapshot neither raises the bound nor frees the place.
//! - A section without a place has no rows while the database's places are *complete*. They are not after the start of
//!   the server, after a statement written by hand and when one did not fit; then a claim reads from the index which
//!   sections there are, and what it found makes them complete again (`publish`).
//! - Each void of all that was known begins a new *generation*: what was seen before it counts for nothing.
//!
//! The places of a database are a list, the last one lowered first: a session keeps what it knows of the sections and
//! reads only what was lowered since, whatever else there is.
//!
//! Cost: 48 bytes a place. A database takes another place only while it has fewer than twice as many as are free, so that one
//! with a million lanes leaves room for the others; it reads its sections from the index, about every second.

use super::available;
use super::bell::{BELLS_AT_MOST, bell};
use pgrx::pg_sys;
use pgrx::{PgLwLock, PgSharedMemoryInitialization};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

const PLACES: usize = 131_072;
const BUCKETS: usize = PLACES;
/// How often the sections are looked at again, at most.
const LOOK_AGAIN_MICROS: i64 = 1_000_000;
/// The share of the time that this may take, as its inverse.
const LOOK_AGAIN_SHARE: i64 = 100;
/// No place, where one is named by its number and one.
const NOWHERE: u32 = 0;

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
    /// The number of the change that last touched it.
    changed: u64,
    /// The number of the change that last lowered its bound, or made it.
    lowered: u64,
    next_in_bucket: u32,
    newer: u32,
    older: u32,
    database: u16,
    priority: i16,
}

/// What can be read of a database's places without the lock; written under it.
struct Database {
    /// How many changes there were.
    changes: AtomicU64,
    /// The change that last lowered or made a place.
    lowered: AtomicU64,
    generation: AtomicU64,
    complete: AtomicBool,
    /// The last change for which there was no place: what was known of sections without one is void from then on.
    unfit: AtomicU64,
    newest: AtomicU32,
    count: AtomicU32,
    look_at: AtomicI64,
    /// Where the last look again stopped; the lane with its sign turned, so that zero comes before all.
    looked_lane: AtomicI64,
    looked_priority: AtomicI64,
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

    /// A new place for a section that has none, in its bucket and in no list; `None` when the database has its share.
    fn add(&mut self, head: &Database, database: usize, section: Section) -> Option<u32> {
        let count = head.count.load(Ordering::Relaxed);
        if count >= (PLACES as u32 - self.taken).saturating_mul(2) {
            return None;
        }
        let number = if self.free != NOWHERE {
            let number = self.free;
            self.free = self.at(number).next_in_bucket;
            number
        } else {
            self.unused += 1;
            self.unused
        };
        self.taken += 1;
        head.count.store(count + 1, Ordering::Relaxed);
        let bucket = self.bucket(database, section);
        *self.at(number) = Place {
            lane: section.lane,
            bound: i64::MAX,
            changed: head.unfit.load(Ordering::Relaxed),
            lowered: 0,
            next_in_bucket: self.buckets[bucket],
            newer: NOWHERE,
            older: NOWHERE,
            database: database as u16,
            priority: section.priority,
        };
        self.buckets[bucket] = number;
        Some(number)
    }

    fn link(&mut self, head: &Database, number: u32) {
        let newest = head.newest.swap(number, Ordering::Relaxed);
        self.at(number).older = newest;
        self.at(number).newer = NOWHERE;
        if newest != NOWHERE {
            self.at(newest).newer = number;
        }
    }

    fn unlink(&mut self, head: &Database, number: u32) {
        let Place { newer, older, .. } = *self.at(number);
        if newer != NOWHERE {
            self.at(newer).older = older;
        } else {
            head.newest.store(older, Ordering::Relaxed);
        }
        if older != NOWHERE {
            self.at(older).newer = newer;
        }
    }

    /// Lowers the bound of a section, which gets a place if it has none; false when there is no room for one.
    fn lower(
        &mut self,
        head: &Database,
        database: usize,
        row: (Section, i64),
        change: u64,
    ) -> bool {
        let (section, bound) = row;
        let number = match self.find(database, section) {
            Some(number) if self.at(number).bound <= bound => return true,
            Some(number) => {
                self.unlink(head, number);
                number
            }
            None => match self.add(head, database, section) {
                Some(number) => number,
                None => return false,
            },
        };
        let place = self.at(number);
        place.bound = bound;
        place.lowered = change;
        self.link(head, number);
        head.lowered.store(change, Ordering::SeqCst);
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
        self.free = number;
        self.taken -= 1;
        head.count.fetch_sub(1, Ordering::Relaxed);
    }

    fn clear(&mut self, head: &Database, database: usize) {
        while let number @ 1.. = head.newest.load(Ordering::Relaxed) {
            self.remove(head, database, number);
        }
        head.complete.store(false, Ordering::SeqCst);
        head.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// The sections lowered after a change, the last first.
    fn since(&self, head: &Database, change: u64) -> Vec<(Section, i64)> {
        let mut rows = Vec::new();
        let mut number = head.newest.load(Ordering::Relaxed);
        while number != NOWHERE {
            let place = &self.places[number as usize - 1];
            if place.lowered <= change {
                break;
            }
            let section = Section {
                lane: place.lane,
                priority: place.priority,
            };
            rows.push((section, place.bound));
            number = place.older;
        }
        rows
    }
}

/// What was known of the sections before a claim took its snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanesState {
    pub(crate) generation: u64,
    changes: u64,
    /// Sections without a place have no rows.
    pub(crate) complete: bool,
}

/// To be read before the snapshot is taken; `None` where there is no place for this database.
pub(crate) fn lanes() -> Option<LanesState> {
    let (memory, database) = own()?;
    let head = &memory.databases[database];
    Some(LanesState {
        generation: head.generation.load(Ordering::SeqCst),
        changes: head.changes.load(Ordering::SeqCst),
        complete: head.complete.load(Ordering::SeqCst),
    })
}

/// The sections that were lowered after a change.
pub(crate) struct Lowered {
    pub(crate) rows: Vec<(Section, i64)>,
    /// The last change that lowered one.
    pub(crate) last: u64,
    /// Nothing was made void since `state` was read, and these are all sections that have rows.
    pub(crate) all: bool,
}

/// The sections that were lowered after a change; for 0 all that have a place.
pub(crate) fn lowered_since(state: &LanesState, change: u64) -> Lowered {
    let nothing = Lowered {
        rows: Vec::new(),
        last: change,
        all: false,
    };
    let Some((memory, database)) = own() else {
        return nothing;
    };
    let head = &memory.databases[database];
    if change != 0 && head.lowered.load(Ordering::SeqCst) == change {
        return nothing;
    }
    memory.read(|places| Lowered {
        rows: places.since(head, change),
        last: head.lowered.load(Ordering::SeqCst),
        all: change == 0
            && head.complete.load(Ordering::SeqCst)
            && head.generation.load(Ordering::SeqCst) == state.generation,
    })
}

/// What is known of a section while a claim is under way.
pub(crate) enum Peek {
    /// No row comes before this job.
    From(i64),
    /// No rows wait.
    Empty,
    /// It has no place, and may have rows.
    Unknown,
    /// What the claim knew before is void.
    Void,
}

pub(crate) fn peek(state: &LanesState, section: Section) -> Peek {
    let Some((memory, database)) = own() else {
        return Peek::Void;
    };
    let head = &memory.databases[database];
    memory.read(|places| {
        if head.generation.load(Ordering::SeqCst) != state.generation {
            return Peek::Void;
        }
        match places.find(database, section) {
            Some(number) => Peek::From(places.places[number as usize - 1].bound),
            None if head.complete.load(Ordering::SeqCst) => Peek::Empty,
            None => Peek::Unknown,
        }
    })
}

/// What a claim has found out about a section: its first row.
pub(crate) struct Finding {
    pub(crate) section: Section,
    pub(crate) first: Option<i64>,
}

/// Raises bounds to what has been found, and frees places of sections without rows; of sections that have changed
/// since `state` was read only lowers them. Gives for each finding whether it holds.
pub(crate) fn raise(state: &LanesState, findings: &[Finding]) -> Vec<bool> {
    let Some((memory, database)) = own().filter(|_| !findings.is_empty()) else {
        return vec![false; findings.len()];
    };
    let head = &memory.databases[database];
    memory.write(|places| {
        if head.generation.load(Ordering::SeqCst) != state.generation {
            return vec![false; findings.len()];
        }
        let believe = |finding: &Finding| {
            let Some(number) = places.find(database, finding.section) else {
                return true;
            };
            let place = places.at(number);
            let holds = place.changed <= state.changes;
            match finding.first {
                Some(first) if holds => place.bound = place.bound.max(first),
                Some(first) => {
                    let change = head.changes.fetch_add(1, Ordering::SeqCst) + 1;
                    places.lower(head, database, (finding.section, first), change);
                }
                None if holds => places.remove(head, database, number),
                None => {}
            }
            holds
        };
        findings.iter().map(believe).collect()
    })
}

/// Lowers bounds to rows that have become claimable: the first job of each section.
pub(crate) fn lower(rows: impl Iterator<Item = (Section, i64)>) {
    let Some((memory, database)) = own() else {
        return;
    };
    let head = &memory.databases[database];
    memory.write(|places| {
        for row in rows {
            let change = head.changes.fetch_add(1, Ordering::SeqCst) + 1;
            if places.lower(head, database, row, change) {
                let number = places.find(database, row.0).expect("lowered");
                places.at(number).changed = change;
            } else {
                head.unfit.store(change, Ordering::SeqCst);
                head.complete.store(false, Ordering::SeqCst);
            }
        }
    });
}

/// Notes sections that were read from the index, with their first rows, after `state` was read; with `all` these are all
/// there are.
pub(crate) fn publish(state: &LanesState, rows: &[(Section, i64)], all: bool) {
    let Some((memory, database)) = own() else {
        return;
    };
    let head = &memory.databases[database];
    memory.write(|places| {
        if head.generation.load(Ordering::SeqCst) != state.generation {
            return;
        }
        let mut fit = true;
        for row in rows {
            let change = head.changes.fetch_add(1, Ordering::SeqCst) + 1;
            fit &= places.lower(head, database, *row, change);
        }
        // What found no place since may be in none of these rows.
        if all && fit && head.unfit.load(Ordering::SeqCst) <= state.changes {
            head.complete.store(true, Ordering::SeqCst);
        }
    });
}

/// Knows nothing any more of the sections of this database.
pub(super) fn forget() {
    if let Some((memory, database)) = own() {
        clear(memory, database);
    }
}

/// Frees the places of the database with this number.
pub(super) fn free(database: usize) {
    if let Some(memory) = memory() {
        clear(memory, database);
    }
}

fn clear(memory: &Memory, database: usize) {
    memory.write(|places| places.clear(&memory.databases[database], database));
}

/// The section after which to look again, if it is time to; `Some` for one of those who ask at once.
pub(crate) fn look_again(now: i64) -> Option<Section> {
    let (memory, database) = own()?;
    let head = &memory.databases[database];
    let due = head.look_at.load(Ordering::Relaxed);
    // A clock that was set back must not make it wait for the old time.
    if due > now && due <= now + 3600 * LOOK_AGAIN_MICROS {
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
    let pause = took.saturating_mul(LOOK_AGAIN_SHARE);
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

/// How many places the databases with these bells have; for tests of what is freed.
#[cfg(test)]
fn taken(memory: &Memory) -> u32 {
    // SAFETY: a test has its own memory.
    unsafe { (*memory.places.get()).taken }
}

#[cfg(test)]
mod tests {
    use super::{Memory, PLACES, Section, taken};
    use std::sync::atomic::Ordering;

    fn empty() -> Box<Memory> {
        // SAFETY: all zero is a valid, empty memory.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn section(lane: i64) -> Section {
        Section { lane, priority: 3 }
    }

    #[test]
    fn places_are_found_until_they_are_removed_and_then_used_again() {
        let memory = empty();
        // SAFETY: alone.
        let places = unsafe { &mut *memory.places.get() };
        for round in 0..3 {
            for lane in 0..1000 {
                let (database, head) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
                assert!(places.lower(head, database, (section(lane), 10 + lane), lane as u64 + 1));
            }
            assert_eq!(taken(&memory), 1000, "round {round}");
            assert!(places.find(1, section(2)).is_none(), "of another database");
            for lane in 0..1000 {
                let (database, head) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
                let number = places.find(database, section(lane)).expect("it is there");
                assert_eq!(places.at(number).bound, 10 + lane);
                places.remove(head, database, number);
                assert!(places.find(database, section(lane)).is_none());
            }
            assert_eq!(taken(&memory), 0);
            assert!(places.unused <= 1000);
            assert_eq!(memory.databases[0].newest.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn what_was_lowered_last_comes_first_and_what_was_not_does_not_come() {
        let memory = empty();
        let head = &memory.databases[0];
        // SAFETY: alone.
        let places = unsafe { &mut *memory.places.get() };
        for (change, (lane, bound)) in [(1, 50), (2, 50), (3, 50), (1, 60), (2, 40)]
            .into_iter()
            .enumerate()
        {
            assert!(places.lower(head, 0, (section(lane), bound), change as u64 + 1));
        }
        let since = |change| -> Vec<(i64, i64)> {
            let rows = places.since(head, change).into_iter();
            rows.map(|(section, bound)| (section.lane, bound)).collect()
        };
        assert_eq!(since(0), [(2, 40), (3, 50), (1, 50)]);
        assert_eq!(since(3), [(2, 40)]);
        assert_eq!(since(5), []);
    }

    #[test]
    fn a_database_with_any_number_of_lanes_leaves_places_for_others() {
        let memory = empty();
        // SAFETY: alone.
        let places = unsafe { &mut *memory.places.get() };
        let mut counts = Vec::new();
        for (database, head) in memory.databases.iter().enumerate().take(4) {
            let fit = (0..PLACES as i64)
                .take_while(|lane| places.lower(head, database, (section(*lane), 1), 1))
                .count();
            counts.push(fit);
        }
        assert!(counts[0] > 80_000 && counts[3] > 3_000, "{counts:?}");
        places.clear(&memory.databases[0], 0);
        assert_eq!(memory.databases[0].count.load(Ordering::Relaxed), 0);
        assert_eq!(
            taken(&memory) as usize,
            counts[1..].iter().sum::<usize>(),
            "the others keep theirs"
        );
    }
}
