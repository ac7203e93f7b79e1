//! Heads: where the waiting rows of each lane begin.
//!
//! Words: a *bound* says, of one lane and one priority, that no row waits whose job comes before it. Rows that were
//! claimed leave dead entries in the index, at the head of the lane, until a vacuum; a claim that begins at the bound
//! does not read them (0.06 µs each, all of them at every claim).
//!
//! Holds: a bound is never above a row that has committed, apart from what [`LOOK_AGAIN_MICROS`] forgives.
//! - A bound is raised to the first row that a claim's snapshot sees, rows included that others have locked or are
//!   deleting; never by a transaction that has taken rows itself.
//! - Who makes a row claimable lowers the bound when the transaction has committed, however late, and counts a
//!   *change* of the lane. Whoever saw another count of changes before its snapshot does not raise the bound.
//! - A statement written by hand makes all bounds of the database void, and so does the end of a prepared transaction.
//! - What nobody lowers for (a transaction that was prepared before a restart) is found because each lane is read from its beginning once a second, or
//!   less often when that takes long: a hundredth of the time at most.
//!
//! A *gate* says that a group was full when somebody counted under its lock, until something changes.

use super::{available, forget_dropped};
use pgrx::pg_sys;
use pgrx::{PgLwLock, PgSharedMemoryInitialization};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Lanes that have bounds; those beyond are read from their beginning. 300 bytes each.
const LANES: usize = 16_384;
const PRIORITIES: usize = 32;
/// How far a lane may be from the place that its hash names.
const STRAY: usize = 64;
/// The bound of a priority that no row has.
const NONE: i64 = i64::MAX;
/// Marks a place whose database is gone: a search goes on behind it. No database has this oid; of those below 16,384
/// the server gives 1, 4 and 5.
const FREED: u32 = 2;
/// How often a process that finds no place for a lane looks whether databases are gone.
const FORGET_MICROS: i64 = 60_000_000;
/// How often a lane is read from its beginning.
const LOOK_AGAIN_MICROS: i64 = 1_000_000;
/// The share of the time that this may take, as its inverse.
const LOOK_AGAIN_SHARE: i64 = 100;
/// How long a closed gate is believed without counting again.
const GATE_MICROS: i64 = 1_000_000;

/// All zero is empty. By place of the lane, apart from `changes` and the gates, which are by hash.
#[repr(C)]
struct Memory {
    changes: [AtomicU64; LANES],
    database: [AtomicU32; LANES],
    lane: [AtomicI64; LANES],
    /// The best place that a row of the lane may have.
    best: [AtomicU64; LANES],
    look_at: [AtomicI64; LANES],
    /// Priorities from here on up have bounds; those below are not known.
    known: [AtomicU32; LANES],
    bounds: [[AtomicI64; PRIORITIES]; LANES],
    gate_changes: [AtomicU64; LANES],
    /// The group and its changes when it was found full, and until when that is believed.
    gate_closed: [AtomicU64; LANES],
    gate_until: [AtomicI64; LANES],
}

/// The memory, found by the postmaster and inherited by every process.
struct Place(AtomicPtr<Memory>);

static MEMORY: Place = Place(AtomicPtr::new(std::ptr::null_mut()));
// SAFETY: no other lock has this name.
static WRITING: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax heads lock") };

/// When this process last looked whether databases are gone.
static FORGOTTEN_AT: AtomicI64 = AtomicI64::new(i64::MIN);

impl PgSharedMemoryInitialization for Place {
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
                c"trax heads".as_ptr(),
                size_of::<Memory>(),
                &raw mut found,
            )
            .cast::<Memory>();
            if !found {
                memory.write_bytes(0, 1);
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
    pg_shmem_init!(WRITING = 0);
}

fn memory() -> Option<&'static Memory> {
    if !available() {
        return None;
    }
    // SAFETY: null or the memory, which lives as long as the server.
    unsafe { MEMORY.0.load(Ordering::Relaxed).as_ref() }
}

fn database() -> u32 {
    // SAFETY: a plain number.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

fn hash(of: i64, database: u32) -> usize {
    let mixed = (of as u64 ^ (u64::from(database) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % LANES
}

/// A place in the order of claiming as one number: priority, then job.
fn packed(priority: i16, job_id: i64) -> u64 {
    let above = (PRIORITIES as u64 - 1) - priority as u64;
    above << 59 | (job_id as u64).min((1 << 59) - 2)
}

/// What no place comes after.
const EMPTY: u64 = u64::MAX;

/// A lane's place in the memory.
#[derive(Clone, Copy)]
pub(crate) struct LaneKey {
    lane: i64,
    database: u32,
    hash: usize,
}

/// What is known of a lane before a claim looks at it.
pub(crate) struct Known {
    /// How often it has changed.
    pub(crate) changes: u64,
    /// Where rows may wait, best first; read from the beginning when there is nothing else to go by.
    pub(crate) hint: Hint,
}

pub(crate) enum Hint {
    /// Nothing waits.
    Empty,
    /// No row comes before this priority and job.
    Best(i16, i64),
    /// Read it from its beginning.
    Nothing,
}

impl LaneKey {
    pub(crate) fn new(lane: i64) -> Self {
        Self::of(lane, database())
    }

    fn of(lane: i64, database: u32) -> Self {
        Self {
            lane,
            database,
            hash: hash(lane, database),
        }
    }

    fn find(self, memory: &Memory) -> Option<usize> {
        for step in 0..STRAY {
            let place = (self.hash + step) % LANES;
            match memory.database[place].load(Ordering::Acquire) {
                0 => return None,
                owner => {
                    if owner == self.database
                        && memory.lane[place].load(Ordering::Relaxed) == self.lane
                    {
                        return Some(place);
                    }
                }
            }
        }
        None
    }

    fn find_or_add(self, memory: &Memory) -> Option<usize> {
        if let Some(place) = self.find(memory) {
            return Some(place);
        }
        let place = (0..STRAY)
            .map(|step| (self.hash + step) % LANES)
            .find(|place| matches!(memory.database[*place].load(Ordering::Relaxed), 0 | FREED))?;
        memory.lane[place].store(self.lane, Ordering::Relaxed);
        memory.known[place].store(PRIORITIES as u32, Ordering::Relaxed);
        memory.best[place].store(0, Ordering::Relaxed);
        memory.look_at[place].store(0, Ordering::Relaxed);
        memory.database[place].store(self.database, Ordering::Release);
        Some(place)
    }

    /// To be read before the snapshot is taken.
    pub(crate) fn known(self, now: i64) -> Known {
        let Some(memory) = memory() else {
            return Known {
                changes: 0,
                hint: Hint::Nothing,
            };
        };
        let changes = memory.changes[self.hash].load(Ordering::SeqCst);
        let hint = match self.find(memory) {
            None => Hint::Nothing,
            Some(place) if look_again(memory, place, now) => Hint::Nothing,
            Some(place) => match memory.best[place].load(Ordering::SeqCst) {
                EMPTY => Hint::Empty,
                best => Hint::Best(
                    (PRIORITIES as u64 - 1 - (best >> 59)) as i16,
                    (best & ((1 << 59) - 1)) as i64,
                ),
            },
        };
        Known { changes, hint }
    }

    /// The bounds of its priorities, highest first, and below which priority nothing is known.
    pub(crate) fn bounds(self) -> (Vec<(i16, i64)>, i16) {
        let Some((memory, place)) = memory().and_then(|m| Some((m, self.find(m)?))) else {
            return (Vec::new(), PRIORITIES as i16);
        };
        let known = memory.known[place].load(Ordering::SeqCst) as usize;
        let bounds = (known..PRIORITIES)
            .rev()
            .map(|priority| {
                let bound = memory.bounds[place][priority].load(Ordering::SeqCst);
                (priority as i16, bound)
            })
            .filter(|&(_, bound)| bound != NONE)
            .collect();
        (bounds, known as i16)
    }
}

/// Whether it is time to read a lane from its beginning; true for one of those who ask at once.
fn look_again(memory: &Memory, place: usize, now: i64) -> bool {
    let due = memory.look_at[place].load(Ordering::Relaxed);
    // A clock that was set back must not make it wait for the old time.
    let is_due = due <= now || due > now + 3600 * LOOK_AGAIN_MICROS;
    is_due
        && memory.look_at[place]
            .compare_exchange(
                due,
                now + LOOK_AGAIN_MICROS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
}

/// What a claim has found out about a lane.
pub(crate) struct Finding {
    pub(crate) lane: LaneKey,
    /// The count of changes before the claim's snapshot.
    pub(crate) changes: u64,
    pub(crate) found: Found,
}

pub(crate) enum Found {
    /// The first row of a priority, if it has one.
    Of(i16, Option<i64>),
    /// The first row of all priorities below this one, and how long it took to find in microseconds.
    Below(i16, Option<(i16, i64)>, i64),
}

impl Found {
    /// Priority and job of the first row.
    fn first(&self) -> Option<(i16, i64)> {
        match *self {
            Self::Of(priority, first) => first.map(|job_id| (priority, job_id)),
            Self::Below(_, first, _) => first,
        }
    }
}

/// Raises bounds to what has been found; of lanes that have changed meanwhile only lowers them. Inside a transaction only.
pub(crate) fn raise(findings: &[Finding], now: i64) {
    let Some(memory) = memory().filter(|_| !findings.is_empty()) else {
        return;
    };
    let mut is_full = false;
    let writing = WRITING.exclusive();
    for finding in findings {
        let key = finding.lane;
        if memory.changes[key.hash].load(Ordering::SeqCst) == finding.changes {
            if let Some(place) = key.find_or_add(memory) {
                believe(memory, place, &finding.found, now);
                set_best(memory, place);
            } else {
                is_full = true;
            }
        } else if let Some(((priority, job_id), place)) =
            finding.found.first().zip(key.find(memory))
        {
            memory.bounds[place][priority as usize].fetch_min(job_id, Ordering::SeqCst);
            set_best(memory, place);
        }
    }
    drop(writing);
    let forgotten_at = FORGOTTEN_AT.load(Ordering::Relaxed);
    if is_full && now >= forgotten_at.saturating_add(FORGET_MICROS) {
        FORGOTTEN_AT.store(now, Ordering::Relaxed);
        forget_dropped();
    }
}

/// The databases that have places.
pub(super) fn databases() -> Vec<u32> {
    memory().map_or_else(Vec::new, |memory| {
        let owners = memory.database.iter();
        owners
            .map(|owner| owner.load(Ordering::Relaxed))
            .filter(|&owner| owner != 0 && owner != FREED)
            .collect()
    })
}

/// Frees the places of databases that are gone.
pub(super) fn free(gone: &[u32]) {
    if let Some(memory) = memory() {
        let _writing = WRITING.exclusive();
        free_places(memory, gone);
    }
}

fn free_places(memory: &Memory, gone: &[u32]) {
    for owner in &memory.database {
        if gone.contains(&owner.load(Ordering::Relaxed)) {
            owner.store(FREED, Ordering::Release);
        }
    }
}

/// Each bound is written once: who reads them meanwhile must not find a lane empty that is not.
fn believe(memory: &Memory, place: usize, found: &Found, now: i64) {
    let bounds = &memory.bounds[place];
    match *found {
        Found::Of(priority, first) => {
            bounds[priority as usize].store(first.unwrap_or(NONE), Ordering::SeqCst);
        }
        Found::Below(limit, first, took) => {
            let known = first.map_or(0, |(priority, _)| priority) as usize;
            for (priority, bound) in bounds.iter().enumerate().take(limit as usize).skip(known) {
                let of_first = first.filter(|&(of, _)| of as usize == priority);
                bound.store(
                    of_first.map_or(NONE, |(_, job_id)| job_id),
                    Ordering::SeqCst,
                );
            }
            memory.known[place].store(known as u32, Ordering::SeqCst);
            let pause = LOOK_AGAIN_MICROS.max(took.saturating_mul(LOOK_AGAIN_SHARE));
            memory.look_at[place].store(now + pause, Ordering::Relaxed);
        }
    }
}

fn set_best(memory: &Memory, place: usize) {
    let known = memory.known[place].load(Ordering::Relaxed) as usize;
    let of_known = (known..PRIORITIES).rev().find_map(|priority| {
        let bound = memory.bounds[place][priority].load(Ordering::Relaxed);
        (bound != NONE).then(|| packed(priority as i16, bound))
    });
    let best = match (of_known, known) {
        (Some(best), _) => best,
        (None, 0) => EMPTY,
        (None, known) => packed(known as i16 - 1, 0),
    };
    memory.best[place].store(best, Ordering::SeqCst);
}

/// Lowers bounds to rows that have become claimable: lane, priority and first job of each.
pub(crate) fn lower(rows: impl Iterator<Item = (i64, i16, i64)>) {
    let Some(memory) = memory() else { return };
    let _writing = WRITING.exclusive();
    for (lane, priority, job_id) in rows {
        let key = LaneKey::new(lane);
        memory.changes[key.hash].fetch_add(1, Ordering::SeqCst);
        if let Some(place) = key.find(memory) {
            memory.bounds[place][priority as usize].fetch_min(job_id, Ordering::SeqCst);
            memory.best[place].fetch_min(packed(priority, job_id), Ordering::SeqCst);
        }
    }
}

/// Knows nothing any more of the lanes and groups of this database.
pub(crate) fn forget() {
    let Some(memory) = memory() else { return };
    let _writing = WRITING.exclusive();
    for place in 0..LANES {
        memory.changes[place].fetch_add(1, Ordering::SeqCst);
        memory.gate_changes[place].fetch_add(1, Ordering::SeqCst);
        if memory.database[place].load(Ordering::Relaxed) == database() {
            memory.known[place].store(PRIORITIES as u32, Ordering::SeqCst);
            memory.best[place].store(0, Ordering::SeqCst);
        }
    }
}

/// A group's gate.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    hash: usize,
    group: u32,
}

impl Gate {
    /// `group` is a hash of its name.
    pub(crate) fn new(group: u64) -> Self {
        Self {
            hash: hash(group as i64, database()),
            group: (group >> 32) as u32,
        }
    }

    /// How often something changed that may have made room; to be read before counting.
    pub(crate) fn changes(self) -> u64 {
        memory().map_or(0, |m| m.gate_changes[self.hash].load(Ordering::SeqCst))
    }

    fn closed(self, changes: u64) -> u64 {
        // Zero is a gate that was never closed.
        (u64::from(self.group) << 32 | changes & 0xffff_ffff) | 1 << 63
    }

    pub(crate) fn is_closed(self, now: i64) -> bool {
        memory().is_some_and(|m| {
            let until = m.gate_until[self.hash].load(Ordering::Relaxed);
            m.gate_closed[self.hash].load(Ordering::SeqCst) == self.closed(self.changes())
                && (now..now + 2 * GATE_MICROS).contains(&until)
        })
    }

    /// The group was full when it was counted after its changes were read.
    pub(crate) fn close(self, changes: u64, now: i64) {
        if let Some(memory) = memory() {
            memory.gate_until[self.hash].store(now + GATE_MICROS, Ordering::Relaxed);
            memory.gate_closed[self.hash].store(self.closed(changes), Ordering::SeqCst);
        }
    }

    /// There may be room.
    pub(crate) fn open(self) {
        if let Some(memory) = memory() {
            memory.gate_changes[self.hash].fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EMPTY, LANES, LaneKey, Memory, PRIORITIES, free_places};
    use std::sync::atomic::Ordering;

    fn empty() -> Box<Memory> {
        // SAFETY: all zero is a valid, empty memory.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn a_database_that_is_gone_leaves_its_places_and_hides_none_behind_them() {
        let memory = empty();
        // More than there are places, so that many stand far from where their hash names.
        let keys: Vec<LaneKey> = (0..2 * LANES as i64)
            .map(|lane| LaneKey::of(lane, 100 + (lane % 2) as u32))
            .collect();
        for key in &keys {
            if let Some(place) = key.find_or_add(&memory) {
                memory.best[place].store(EMPTY, Ordering::Relaxed);
                memory.known[place].store(0, Ordering::Relaxed);
            }
        }
        let late = LaneKey::of(7, 300);
        assert_eq!(late.find_or_add(&memory), None, "all places are taken");
        let places = |keys: &[LaneKey]| -> Vec<Option<usize>> {
            let odd = keys.iter().filter(|key| key.database == 101);
            odd.map(|key| key.find(&memory)).collect()
        };
        let before = places(&keys);
        free_places(&memory, &[100]);
        assert_eq!(places(&keys), before, "the others are where they were");
        let gone = keys.iter().filter(|key| key.database == 100);
        assert_eq!(gone.filter_map(|key| key.find(&memory)).count(), 0);
        let place = late.find_or_add(&memory).expect("a place is free");
        assert_eq!(late.find(&memory), Some(place));
        assert_eq!(
            memory.best[place].load(Ordering::Relaxed),
            0,
            "nothing is known"
        );
        let known = memory.known[place].load(Ordering::Relaxed);
        assert_eq!(known as usize, PRIORITIES);
    }
}
