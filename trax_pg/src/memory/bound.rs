//! Bounds: numbers that save a claim from counting leases, or from reading dead index entries.
//!
//! A *bound* is a number about one thing of this database, which its kind and its name identify:
//!
//! - `first_lease` of a group, a concurrency key, a manifest or the database: no lease with a lower
//!   job id counts towards its limit. Ended leases leave dead entries at the front of the index
//!   while any snapshot is older; a count that begins at the bound does not read them.
//! - `full_until` of a group (its *gate*): a count under the group's lock found no room. The gate
//!   is *closed* until this time, 1 s after the count ([`GATE_MICROS`]), or until it is opened;
//!   claims do not read the lanes behind a closed gate.
//! - The gates of a rate and a key: a start was refused until this time (`memory/rate_gate.rs`). A
//!   change of the rate opens all gates.
//!
//! Holds for `first_lease`: **a count that has taken its snapshot and then finds the bound
//! unchanged misses no lease that the snapshot shows.** A gate may be closed although a snapshot
//! shows room: the end of a lease opens it in a callback after the commit, microseconds later,
//! before the callback rings. Both kinds follow one protocol:
//!
//! - A bound is raised only to the result of a count, by the session that holds the lock under
//!   which such leases are granted. The count reads the bound before it takes its snapshot.
//! - A claim lowers the bound to the job that it takes, under the same lock.
//! - A transaction that changes leases without that lock (leases written by hand, a claim without
//!   the database's limit, the end of a prepared transaction) *suspends* bounds before its commit
//!   is visible, and resumes them afterwards. While a bound is suspended, readers find it absent,
//!   and it cannot be written.
//! - A bound is made *void* if its value may no longer be true: the bound of a group that gets a
//!   limit, by the session that configures the group under its lock; a gate, by the transactions
//!   that open it (they ended a lease that counts, claimed from the group, or configured it). A
//!   void bound is absent until it is written again.
//! - A bound has a number that grows when it is suspended or made void. A count reads the number
//!   before its snapshot and stores it with its result; a value whose number is not the current one
//!   is absent. The count reads the number again after it has taken its snapshot, and begins
//!   without a bound if the number has changed.
//!
//! An absent bound costs time only. Bounds are absent after a crash and when another bound has
//! taken their entry in the table.

use super::area::Area;
use crate::server::backend::my_database;
use crate::server::hash::name_hash;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Number of bounds of all databases; 32 bytes each.
pub(super) const ENTRIES: usize = 65_536;
/// The first bits of a bound's tag, from this one on, are the index of its entry.
const INDEX_AT: u32 = u128::BITS - ENTRIES.ilog2();
/// Number of counters for databases, which share them by hash.
const DATABASES: usize = 64;
/// Number of opened gates that sessions can still read.
const OPENINGS: usize = 4096;
/// Longest time for which a gate stays closed without another count.
pub(crate) const GATE_MICROS: i64 = 1_000_000;

/// How often suspensions have begun and ended; to make a bound void is both at once. All zero is
/// none.
#[repr(C)]
struct Suspensions {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// All zero is empty.
#[repr(C)]
struct Entry {
    suspensions: Suspensions,
    value: AtomicI64,
    /// Identity, value and number of suspensions together, as [`Bound::check`] computes them. If
    /// two bounds that share the entry are written at once, their values and checks may be mixed:
    /// then the check matches neither bound, and both are absent.
    check: AtomicU64,
}

#[repr(C)]
pub(super) struct Memory {
    entries: [Entry; ENTRIES],
    of_databases: [Suspensions; DATABASES],
    /// How often a gate was opened.
    opened: AtomicU64,
    /// The last openings: each one's number plus one, and the entry of its gate.
    openings: [AtomicU64; OPENINGS],
}

pub(super) static BOUNDS: Area<Memory> = Area::zeroed(c"trax bounds");

/// A reference to suspensions: of an entry or of a database.
#[derive(Clone, Copy)]
enum Scope {
    Entry(usize),
    Database(usize),
}

thread_local! {
    /// The suspensions that this process has begun and not ended.
    static SUSPENDED: RefCell<Vec<Scope>> = RefCell::default();
}

fn mixed(of: u64) -> u64 {
    let mut mixed = of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

impl Memory {
    fn suspensions(&self, scope: Scope) -> &Suspensions {
        match scope {
            Scope::Entry(entry) => &self.entries[entry].suspensions,
            Scope::Database(number) => &self.of_databases[number],
        }
    }

    /// Opens the gates of an entry.
    fn open(&self, index: usize) {
        self.entries[index].suspensions.void();
        let opening = self.opened.fetch_add(1, Ordering::SeqCst);
        let entry = (opening + 1) * ENTRIES as u64 + index as u64;
        self.openings[opening as usize % OPENINGS].store(entry, Ordering::SeqCst);
    }
}

impl Suspensions {
    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn void(&self) {
        self.begin();
        self.end();
    }
}

/// The identity of a bound: a keyed hash of its database, kind and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bound {
    tag: u128,
    /// The number of its database's counters.
    database: usize,
}

/// A bound as a count has read it before it took its snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// `None` if the bound is absent.
    pub(crate) value: Option<i64>,
    /// How often the bound had been suspended or made void; `None` while it is suspended.
    suspensions: Option<u64>,
}

impl Reading {
    /// An absent bound that cannot be written.
    pub(crate) const NONE: Self = Self {
        value: None,
        suspensions: None,
    };
}

impl Bound {
    /// Returns the bound on the leases of one thing: its kind and its name.
    pub(crate) fn first_lease(kind: &str, name: &str) -> Self {
        Self::of(kind, name)
    }

    fn of(kind: &str, name: &str) -> Self {
        Self::named(&[kind, name])
    }

    /// Returns the bound on the leases of this database.
    pub(crate) fn of_database() -> Self {
        Self::first_lease("database", "")
    }

    /// Returns the gate of a group.
    pub(crate) fn full_until(group: &str) -> Self {
        Self::of("full", group)
    }

    /// Returns the bound of this name that has a given entry.
    pub(super) fn in_entry(index: u16, name: &[&str]) -> Self {
        let rest = name_hash(name) & ((1 << INDEX_AT) - 1);
        Self {
            tag: u128::from(index) << INDEX_AT | rest,
            database: this_database(),
        }
    }

    /// Returns the bound of this name.
    pub(super) fn named(name: &[&str]) -> Self {
        Self {
            tag: name_hash(name),
            database: this_database(),
        }
    }

    /// Returns its index in the table.
    pub(super) fn index(self) -> usize {
        (self.tag >> INDEX_AT) as usize
    }

    /// Returns the number that identifies it among the bounds of this database.
    pub(crate) fn number(self) -> u128 {
        self.tag
    }

    /// Returns how often the bound was suspended or made void; `None` while it is suspended.
    fn suspensions(self, memory: &Memory) -> Option<u64> {
        let of = [Scope::Entry(self.index()), Scope::Database(self.database)];
        let of = of.map(|scope| memory.suspensions(scope));
        let begun = of.map(|of| of.begun.load(Ordering::SeqCst));
        let ended = of.map(|of| of.ended.load(Ordering::SeqCst));
        (begun == ended).then(|| mixed(begun[0]).wrapping_add(begun[1]))
    }

    /// Returns the check value, never zero.
    fn check(self, value: i64, suspensions: u64) -> u64 {
        let [high, low] = [(self.tag >> 64) as u64, self.tag as u64];
        mixed(low ^ mixed(high ^ mixed(value as u64 ^ mixed(suspensions)))) | 1
    }

    /// Reads the bound. A count does so before it takes its snapshot.
    pub(crate) fn read(self) -> Reading {
        BOUNDS
            .get()
            .map_or(Reading::NONE, |memory| self.read_in(memory))
    }

    fn read_in(self, memory: &Memory) -> Reading {
        let Some(suspensions) = self.suspensions(memory) else {
            return Reading::NONE;
        };
        let entry = &memory.entries[self.index()];
        let check = entry.check.load(Ordering::SeqCst);
        let value = entry.value.load(Ordering::SeqCst);
        Reading {
            value: (check == self.check(value, suspensions)).then_some(value),
            suspensions: Some(suspensions),
        }
    }

    /// Returns whether a count that used `reading`, and has taken its snapshot since, misses
    /// nothing that the snapshot shows.
    pub(crate) fn holds(self, reading: Reading) -> bool {
        BOUNDS
            .get()
            .is_none_or(|memory| self.holds_in(memory, reading))
    }

    fn holds_in(self, memory: &Memory, reading: Reading) -> bool {
        reading.value.is_none() || self.suspensions(memory) == reading.suspensions
    }

    /// Stores the result of a count that began with `reading`. The caller holds the lock under
    /// which such leases are granted.
    pub(crate) fn raise(self, reading: Reading, value: i64) {
        if reading.value != Some(value)
            && let Some(memory) = BOUNDS.get()
        {
            self.write(memory, reading, value);
        }
    }

    /// Lowers the bound to a job that is being claimed. The caller holds the lock under which such
    /// leases are granted.
    pub(crate) fn lower(self, job_id: i64) {
        let Some(memory) = BOUNDS.get() else { return };
        let reading = self.read_in(memory);
        if reading.value.is_some_and(|first| job_id < first) {
            self.write(memory, reading, job_id);
        }
    }

    fn write(self, memory: &Memory, reading: Reading, value: i64) {
        let Some(suspensions) = reading.suspensions else {
            return;
        };
        let entry = &memory.entries[self.index()];
        // The old value is absent before the new one is stored.
        entry.check.store(0, Ordering::SeqCst);
        entry.value.store(value, Ordering::SeqCst);
        let check = self.check(value, suspensions);
        entry.check.store(check, Ordering::SeqCst);
    }

    /// Suspends the bound before this transaction is visible, until [`resume`].
    pub(crate) fn suspend(self) {
        suspend(Scope::Entry(self.index()));
    }

    /// Makes the bound void. The caller holds the lock under which such leases are granted.
    pub(crate) fn void(self) {
        if let Some(memory) = BOUNDS.get() {
            memory.entries[self.index()].suspensions.void();
        }
    }

    /// Returns whether this gate of a group is closed.
    pub(crate) fn is_closed(self, now: i64) -> bool {
        // After the clock was set back, an old time is not believed.
        let until = self.read().value;
        until.is_some_and(|until| (now..now + 2 * GATE_MICROS).contains(&until))
    }

    /// Returns until when this gate of a rate is closed.
    pub(crate) fn closed_until(self, now: i64) -> Option<i64> {
        self.read().value.filter(|&until| until > now)
    }

    /// Closes this gate: a count that began with `reading` has found no room.
    pub(crate) fn close(self, reading: Reading, now: i64) {
        self.raise(reading, now + GATE_MICROS);
    }

    /// Opens this gate: makes it void, because the group may have room, and adds the opening to the
    /// list that sessions read ([`opened_since`]).
    pub(crate) fn open(self) {
        if let Some(memory) = BOUNDS.get() {
            memory.open(self.index());
        }
    }
}

/// Opens the gates of an entry.
pub(super) fn open_entry(index: usize) {
    if let Some(memory) = BOUNDS.get() {
        memory.open(index);
    }
}

/// Returns the gates that were opened after the first `openings`, and updates that number: for each
/// opening the numbers of those that share an entry. `None` if some are unknown: any gate may have
/// been opened.
pub(crate) fn opened_since(openings: &mut u64) -> Option<Vec<RangeInclusive<u128>>> {
    let memory = BOUNDS.get()?;
    let (from, to) = (*openings, memory.opened.load(Ordering::SeqCst));
    *openings = to;
    if to - from > OPENINGS as u64 {
        return None;
    }
    let of = |opening: u64| {
        let entry = memory.openings[opening as usize % OPENINGS].load(Ordering::SeqCst);
        let first = u128::from(entry % ENTRIES as u64) << INDEX_AT;
        let last = first | ((1 << INDEX_AT) - 1);
        // Overwritten by a later opening, or not written yet.
        (entry / ENTRIES as u64 == opening + 1).then_some(first..=last)
    };
    (from..to).map(of).collect()
}

fn this_database() -> usize {
    mixed(u64::from(my_database().to_u32())) as usize % DATABASES
}

fn suspend(scope: Scope) {
    if let Some(memory) = BOUNDS.get() {
        SUSPENDED.with_borrow_mut(|suspended| {
            suspended.push(scope);
            memory.suspensions(scope).begin();
        });
    }
}

/// Suspends all bounds of this database before this transaction is visible, until [`resume`].
pub(crate) fn suspend_all() {
    suspend(Scope::Database(this_database()));
}

/// Ends the suspensions that this session has begun: its changes are visible, or undone.
pub(crate) fn resume() {
    let suspended = SUSPENDED.take();
    if let Some(memory) = BOUNDS.get() {
        for scope in suspended {
            memory.suspensions(scope).end();
        }
    }
}

/// Makes all bounds of this database void, which opens all its gates.
pub(super) fn void_all() {
    if let Some(memory) = BOUNDS.get() {
        memory.of_databases[this_database()].void();
        // More than the openings that a session can read.
        memory
            .opened
            .fetch_add(OPENINGS as u64 + 1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Memory, Scope};

    const BOUND: Bound = Bound {
        tag: 7 << 64 | 9,
        database: 1,
    };

    fn empty() -> Box<Memory> {
        // SAFETY: all zero is a valid, empty memory.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn read(memory: &Memory) -> Option<i64> {
        BOUND.read_in(memory).value
    }

    #[test]
    fn a_bound_is_absent_from_before_a_commit_until_it_is_written_after_it() {
        let memory = empty();
        for by in [Scope::Entry(BOUND.index()), Scope::Database(BOUND.database)] {
            BOUND.write(&memory, BOUND.read_in(&memory), 100);
            let before = BOUND.read_in(&memory);
            assert_eq!(before.value, Some(100));
            assert!(BOUND.holds_in(&memory, before));

            memory.suspensions(by).begin();
            assert!(!BOUND.holds_in(&memory, before), "a count begins again");
            let meanwhile = BOUND.read_in(&memory);
            assert_eq!(meanwhile.value, None);
            BOUND.write(&memory, meanwhile, 200);
            BOUND.write(&memory, before, 150);
            assert_eq!(read(&memory), None);

            memory.suspensions(by).end();
            assert_eq!(read(&memory), None);
            assert!(!BOUND.holds_in(&memory, before));
            BOUND.write(&memory, before, 150);
            assert_eq!(read(&memory), None, "counted before");
            BOUND.write(&memory, BOUND.read_in(&memory), 50);
            assert_eq!(read(&memory), Some(50));
        }
    }

    #[test]
    fn overlapping_suspensions_end_together() {
        let memory = empty();
        let suspensions = &memory.of_databases[BOUND.database];
        suspensions.begin();
        suspensions.begin();
        suspensions.end();
        BOUND.write(&memory, BOUND.read_in(&memory), 9);
        assert_eq!(read(&memory), None);
        suspensions.end();
        BOUND.write(&memory, BOUND.read_in(&memory), 9);
        assert_eq!(read(&memory), Some(9));
    }

    #[test]
    fn bounds_that_share_a_place_replace_each_other() {
        let memory = empty();
        let other = Bound {
            tag: 7 << 64 | 10,
            ..BOUND
        };
        assert_eq!(other.index(), BOUND.index());
        BOUND.write(&memory, BOUND.read_in(&memory), 5);
        assert_eq!(other.read_in(&memory).value, None);
        other.write(&memory, other.read_in(&memory), 6);
        assert_eq!(other.read_in(&memory).value, Some(6));
        assert_eq!(read(&memory), None);
    }
}
