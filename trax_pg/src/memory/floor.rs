//! Floors: where the live leases of what is limited begin.
//!
//! Words: a *floor* means, of one group, concurrency key, manifest or database, that no lease
//! towards its limit has a smaller job. Leases that have ended leave dead entries in the index,
//! before the live ones, for as long as a snapshot is held somewhere: a count that begins at the
//! floor does not read them.
//!
//! Holds: a count that begins at a floor misses no lease that counts.
//! - A floor is raised to the first lease that a count sees, by whoever holds the lock under which
//!   such leases are granted, and not past what its own transaction has ended.
//! - A claim lowers it to what it takes, under the same lock and before it adds the lease.
//! - What is not under that lock (leases written by hand, the end of a prepared transaction, a
//!   claim beside the database's limit) *suspends* floors before its commit can be seen, and
//!   resumes them after. Each floor carries how often that had begun when its count did: so one
//!   from before is void, and none is raised meanwhile. A count looks again after it has taken its
//!   snapshot: whatever commit that snapshot sees had suspended the floor by then, and if it has,
//!   the count begins again without a floor.
//! - Who sets a limit for what runs has the lock until it commits: it makes the floor void at once.
//!
//! A floor that another has taken the place of, or that a restart has lost, is absent: leases are
//! read from the beginning.

use super::area::Area;
use crate::server::backend::my_database;
use crate::server::hash::name_hash;
use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How many floors there are, of all databases; 16 bytes each.
const PLACES: usize = 65_536;
/// Counts of what suspends floors, by hash: those of all floors of a database, of its limit, and
/// of one thing.
const VOIDS: usize = 256;
const OF_DATABASE: usize = 64;
const OF_LIMIT: usize = 128;

/// All zero is empty.
#[repr(C)]
pub(super) struct Memory {
    /// How often somebody was about to commit what makes floors void, and how often that has ended.
    begun: [AtomicU64; VOIDS],
    ended: [AtomicU64; VOIDS],
    job_id: [AtomicI64; PLACES],
    /// Of whom it is, as [`Floor::check`] makes it: two that write to one place at once leave what
    /// is nobody's.
    check: [AtomicU64; PLACES],
}

pub(super) static FLOORS: Area<Memory> = Area::zeroed(c"trax floors");

thread_local! {
    /// What this process has suspended and not resumed.
    static SUSPENDED: RefCell<Vec<usize>> = RefCell::default();
}

fn mixed(of: u64) -> u64 {
    let mut mixed = of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

/// The place of one floor.
#[derive(Clone, Copy)]
pub(crate) struct Floor {
    tag: u128,
    /// What suspends it: its own, and that of its database.
    voids: [usize; 2],
}

/// A floor as it was before a count took its snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// No lease that counts has a smaller job.
    pub(crate) from: i64,
    /// How often it had been suspended; `None` while it is.
    voids: Option<u64>,
}

impl Known {
    /// Nothing is known, and what is found is for this count alone.
    pub(crate) const NOTHING: Self = Self {
        from: i64::MIN,
        voids: None,
    };
}

impl Floor {
    /// Returns the floor of a thing of this database: its kind and its name.
    pub(crate) fn of(kind: &str, name: &str) -> Self {
        let tag = name_hash(&[kind, name]);
        let own = OF_LIMIT + tag as usize % (VOIDS - OF_LIMIT);
        Self {
            tag,
            voids: [own, of_this_database()],
        }
    }

    /// Returns the floor of this database's limit.
    pub(crate) fn of_database() -> Self {
        let tag = name_hash(&["database"]);
        let own = OF_DATABASE + tag as usize % (OF_LIMIT - OF_DATABASE);
        Self {
            tag,
            voids: [own, of_this_database()],
        }
    }

    fn slot(self) -> usize {
        (self.tag >> 64) as usize % PLACES
    }

    fn voids(self, memory: &Memory) -> Option<u64> {
        let begun = self.voids.map(|v| memory.begun[v].load(Ordering::SeqCst));
        let ended = self.voids.map(|v| memory.ended[v].load(Ordering::SeqCst));
        (begun == ended).then(|| mixed(begun[0]).wrapping_add(begun[1]))
    }

    /// Returns the check value, never zero.
    fn check(self, job_id: i64, voids: u64) -> u64 {
        let [high, low] = [(self.tag >> 64) as u64, self.tag as u64];
        mixed(low ^ mixed(high ^ mixed(job_id as u64 ^ mixed(voids)))) | 1
    }

    /// Returns what is known; read before the snapshot of a count is taken.
    pub(crate) fn known(self) -> Known {
        FLOORS
            .get()
            .map_or(Known::NOTHING, |memory| self.known_in(memory))
    }

    fn known_in(self, memory: &Memory) -> Known {
        let Some(voids) = self.voids(memory) else {
            return Known::NOTHING;
        };
        let slot = self.slot();
        let check = memory.check[slot].load(Ordering::SeqCst);
        let from = memory.job_id[slot].load(Ordering::SeqCst);
        Known {
            from: if check == self.check(from, voids) {
                from
            } else {
                i64::MIN
            },
            voids: Some(voids),
        }
    }

    /// Returns whether a count that began there sees all that its snapshot does, which it has taken
    /// meanwhile.
    pub(crate) fn holds(self, known: Known) -> bool {
        FLOORS
            .get()
            .is_none_or(|memory| self.holds_in(memory, known))
    }

    fn holds_in(self, memory: &Memory, known: Known) -> bool {
        known.from == i64::MIN || self.voids(memory) == known.voids
    }

    /// Raises it to what a count has found since `known`. The caller holds the lock of what is
    /// counted.
    pub(crate) fn raise(self, known: Known, job_id: i64) {
        if job_id != known.from
            && let Some(memory) = FLOORS.get()
        {
            self.write(memory, known, job_id);
        }
    }

    /// Lowers it to a job that is being claimed. The caller holds the lock of what is claimed.
    pub(crate) fn lower(self, job_id: i64) {
        let Some(memory) = FLOORS.get() else { return };
        let known = self.known_in(memory);
        if job_id < known.from {
            self.write(memory, known, job_id);
        }
    }

    fn write(self, memory: &Memory, known: Known, job_id: i64) {
        let Some(voids) = known.voids else { return };
        let slot = self.slot();
        // The old value is gone before the new one is stored.
        memory.check[slot].store(0, Ordering::SeqCst);
        memory.job_id[slot].store(job_id, Ordering::SeqCst);
        memory.check[slot].store(self.check(job_id, voids), Ordering::SeqCst);
    }

    /// Makes it void, with a few others, before this transaction can be seen and until [`resume`].
    pub(crate) fn suspend(self) {
        suspend(self.voids[0]);
    }

    /// Makes it void, with a few others. The caller holds the lock of what is counted.
    pub(crate) fn forget(self) {
        if let Some(memory) = FLOORS.get() {
            memory.begun[self.voids[0]].fetch_add(1, Ordering::SeqCst);
            memory.ended[self.voids[0]].fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn of_this_database() -> usize {
    mixed(u64::from(my_database().to_u32())) as usize % OF_DATABASE
}

fn suspend(what: usize) {
    if let Some(memory) = FLOORS.get() {
        SUSPENDED.with_borrow_mut(|suspended| {
            suspended.push(what);
            memory.begun[what].fetch_add(1, Ordering::SeqCst);
        });
    }
}

/// Makes all floors of this database void, before what this session commits can be seen and until
/// [`resume`].
pub(crate) fn suspend_all() {
    suspend(of_this_database());
}

/// Resumes the floors that this session has suspended: what it changed can be seen, or is undone.
pub(crate) fn resume() {
    let suspended = SUSPENDED.take();
    if let Some(memory) = FLOORS.get() {
        for what in suspended {
            memory.ended[what].fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Floor, Memory, VOIDS};
    use std::sync::atomic::Ordering;

    const FLOOR: Floor = Floor {
        tag: 7,
        voids: [VOIDS - 1, 1],
    };

    fn empty() -> Box<Memory> {
        // SAFETY: all zero is a valid, empty memory.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn a_floor_is_absent_from_before_a_commit_until_it_is_raised_after_it() {
        let memory = empty();
        let absent = i64::MIN;
        for by in FLOOR.voids {
            FLOOR.write(&memory, FLOOR.known_in(&memory), 100);
            let before = FLOOR.known_in(&memory);
            assert_eq!(before.from, 100);
            assert!(FLOOR.holds_in(&memory, before));

            memory.begun[by].fetch_add(1, Ordering::SeqCst);
            assert!(!FLOOR.holds_in(&memory, before), "a count begins again");
            let meanwhile = FLOOR.known_in(&memory);
            assert_eq!(meanwhile.from, absent);
            FLOOR.write(&memory, meanwhile, 200);
            FLOOR.write(&memory, before, 150);
            assert_eq!(FLOOR.known_in(&memory).from, absent);

            memory.ended[by].fetch_add(1, Ordering::SeqCst);
            assert_eq!(FLOOR.known_in(&memory).from, absent);
            assert!(!FLOOR.holds_in(&memory, before));
            FLOOR.write(&memory, before, 150);
            assert_eq!(FLOOR.known_in(&memory).from, absent, "counted before");
            FLOOR.write(&memory, FLOOR.known_in(&memory), 50);
            assert_eq!(FLOOR.known_in(&memory).from, 50);
        }
    }

    #[test]
    fn two_that_end_at_once_settle_when_both_have_ended() {
        let memory = empty();
        memory.begun[1].fetch_add(2, Ordering::SeqCst);
        memory.ended[1].fetch_add(1, Ordering::SeqCst);
        FLOOR.write(&memory, FLOOR.known_in(&memory), 9);
        assert_eq!(FLOOR.known_in(&memory).from, i64::MIN);
        memory.ended[1].fetch_add(1, Ordering::SeqCst);
        FLOOR.write(&memory, FLOOR.known_in(&memory), 9);
        assert_eq!(FLOOR.known_in(&memory).from, 9);
    }
}
