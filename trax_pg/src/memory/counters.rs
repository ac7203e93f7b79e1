//! Tallies: counts of events since the server started, by database and by task.
//!
//! `trax.metrics()` returns them; nothing else depends on them. Anyone who may enqueue chooses the
//! names of tasks, so a database takes no more tallies than it leaves free for the others. Each
//! database counts its tasks without a tally of their own together, in one more tally. A database
//! keeps its tallies until it is dropped.

use super::{SLOTS, available, forget_dropped};
use crate::columns::Outcome;
use crate::server::backend::my_database;
use crate::server::call::NAME_BYTES;
use pgrx::{PGRXSharedMemory, PgLwLock};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Number of tallies for tasks, of all databases.
pub(crate) const TASKS: usize = 512;
/// Most of them that one database takes, and only while more than it has are free.
const TASKS_OF_ONE: usize = 200;

/// Upper bounds of the histograms' buckets, in microseconds; the last bucket has none.
pub(crate) const BOUNDS: [i64; 15] = [
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
];
pub(crate) const BUCKETS: usize = BOUNDS.len() + 1;

/// Number of ways in which an attempt can end.
pub(crate) const OUTCOMES: usize = Outcome::ALL.len();
/// Number of functions that can be refused because the lease is lost; see `metrics::Stale`.
pub(crate) const STALE: usize = 6;

/// A histogram of durations.
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

impl Histogram {
    const fn empty() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            micros: AtomicU64::new(0),
        }
    }

    /// Returns the count of each bucket, and the sum in microseconds.
    pub(crate) fn read(&self) -> ([u64; BUCKETS], u64) {
        let buckets = self.buckets.each_ref().map(read);
        (buckets, read(&self.micros))
    }

    pub(crate) fn add(&self, buckets: &[u32; BUCKETS], micros: u64) {
        for (all, more) in self.buckets.iter().zip(buckets) {
            add(all, u64::from(*more));
        }
        add(&self.micros, micros);
    }
}

/// Returns the bucket of a duration.
pub(crate) fn bucket(micros: i64) -> usize {
    BOUNDS.partition_point(|bound| *bound < micros)
}

/// The counts of one task in one database.
pub(crate) struct TaskTally {
    database: AtomicU32,
    length: AtomicU32,
    name: UnsafeCell<[u8; NAME_BYTES]>,
    pub(crate) claims: AtomicU64,
    /// The time of the last claim, as `timestamptz`; 0 for never.
    pub(crate) last_claim: AtomicI64,
    pub(crate) outcomes: [AtomicU64; OUTCOMES],
    pub(crate) retries: AtomicU64,
    pub(crate) wait: Histogram,
    pub(crate) run: Histogram,
}

impl TaskTally {
    const fn free() -> Self {
        Self {
            database: AtomicU32::new(0),
            length: AtomicU32::new(0),
            name: UnsafeCell::new([0; NAME_BYTES]),
            claims: AtomicU64::new(0),
            last_claim: AtomicI64::new(0),
            outcomes: [const { AtomicU64::new(0) }; OUTCOMES],
            retries: AtomicU64::new(0),
            wait: Histogram::empty(),
            run: Histogram::empty(),
        }
    }

    fn is_of(&self, database: u32) -> bool {
        self.database.load(Ordering::Relaxed) == database
    }

    /// Returns the name of the task; empty for the common tally of a database.
    pub(crate) fn task(&self) -> &[u8] {
        let length = self.length.load(Ordering::Relaxed) as usize;
        // SAFETY: written once, under the lock, before any process can find the tally.
        unsafe { &(&(*self.name.get()))[..length] }
    }
}

/// The counts of one database.
pub(crate) struct DatabaseTally {
    database: AtomicU32,
    pub(crate) stale: [AtomicU64; STALE],
    pub(crate) cycles: AtomicU64,
    pub(crate) cycle_micros: AtomicU64,
    /// The time at which the last cycle began, as `timestamptz`; 0 for never.
    pub(crate) last_cycle: AtomicI64,
    pub(crate) last_cycle_micros: AtomicU64,
}

impl DatabaseTally {
    const fn free() -> Self {
        Self {
            database: AtomicU32::new(0),
            stale: [const { AtomicU64::new(0) }; STALE],
            cycles: AtomicU64::new(0),
            cycle_micros: AtomicU64::new(0),
            last_cycle: AtomicI64::new(0),
            last_cycle_micros: AtomicU64::new(0),
        }
    }
}

/// All tallies of the server.
pub(super) struct Tallies {
    tasks: [TaskTally; TASKS],
    /// The common tallies of tasks without their own: one for each of `databases`, at the same
    /// index.
    others: [TaskTally; SLOTS],
    databases: [DatabaseTally; SLOTS],
}

// SAFETY: atomics, and names that are written under the lock only.
unsafe impl PGRXSharedMemory for Tallies {}

// SAFETY: no other lock has this name.
pub(super) static TALLIES: PgLwLock<Tallies> = unsafe { PgLwLock::new(c"trax tallies") };

/// The tally of this process's database, once found.
static DATABASE: AtomicPtr<DatabaseTally> = AtomicPtr::new(std::ptr::null_mut());

/// The address of the tallies, once found.
static ALL: AtomicPtr<Tallies> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn empty_tallies() -> Tallies {
    Tallies {
        tasks: [const { TaskTally::free() }; TASKS],
        others: [const { TaskTally::free() }; SLOTS],
        databases: [const { DatabaseTally::free() }; SLOTS],
    }
}

/// Adds to a counter; does not write to it if `more` is zero.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Returns the tally of this process's database; `None` without shared memory, or if all are in
/// use. Call it inside a transaction.
pub(crate) fn database_tally() -> Option<&'static DatabaseTally> {
    if !available() {
        return None;
    }
    // SAFETY: null or a tally in shared memory, which lives as long as the server.
    if let Some(known) = unsafe { DATABASE.load(Ordering::Relaxed).as_ref() } {
        return Some(known);
    }
    if take_database().is_none() {
        forget_dropped();
        take_database()?;
    }
    // SAFETY: as above; found now.
    unsafe { DATABASE.load(Ordering::Relaxed).as_ref() }
}

/// Finds the tally of this process's database, or assigns it a free one.
fn take_database() -> Option<()> {
    let tallies = TALLIES.exclusive();
    let tally = tallies.database(my_database().to_u32())?;
    DATABASE.store(std::ptr::from_ref(tally).cast_mut(), Ordering::Relaxed);
    Some(())
}

/// Returns the index of the tally of a task of this process's database: its own, or the common one.
/// `None` if there is neither. Call it inside a transaction.
pub(crate) fn task_index(task: &str) -> Option<usize> {
    // An empty name means the common tally.
    if !available() || task.is_empty() {
        return None;
    }
    let mine = my_database().to_u32();
    let index = TALLIES.exclusive().task_index(mine, task);
    if index.is_some() {
        return index;
    }
    // This takes the lock itself.
    forget_dropped();
    let tallies = TALLIES.exclusive();
    let index = tallies.task_index(mine, task);
    index.or_else(|| tallies.common_index(mine))
}

/// Returns the databases that have tallies.
pub(super) fn databases() -> Vec<u32> {
    TALLIES.share().databases()
}

/// Frees the tallies of dropped databases.
pub(super) fn free(gone: &[u32]) {
    TALLIES.exclusive().free(gone);
}

impl Tallies {
    fn database(&self, database: u32) -> Option<&DatabaseTally> {
        Some(&self.databases[self.slot(database)?])
    }

    /// Returns the index of a database; assigns it a free one if it has none.
    fn slot(&self, database: u32) -> Option<usize> {
        let of = |wanted| {
            let mut all = self.databases.iter();
            all.position(|tally| tally.database.load(Ordering::Relaxed) == wanted)
        };
        of(database).or_else(|| {
            let free = of(0)?;
            self.databases[free]
                .database
                .store(database, Ordering::Relaxed);
            Some(free)
        })
    }

    /// Returns the index of the tally of a task; assigns it a free one if it has none. `None`
    /// beyond the share of its database.
    fn task_index(&self, database: u32, task: &str) -> Option<usize> {
        let task = task.as_bytes();
        let (mut taken, mut free, mut first_free) = (0, 0, None);
        for (index, tally) in self.tasks.iter().enumerate() {
            if tally.is_of(0) {
                free += 1;
                first_free = first_free.or(Some(index));
            } else if tally.is_of(database) {
                if tally.task() == task {
                    return Some(index);
                }
                taken += 1;
            }
        }
        if taken >= TASKS_OF_ONE.min(free) || task.len() > NAME_BYTES {
            return None;
        }
        let index = first_free?;
        let tally = &self.tasks[index];
        // SAFETY: the tally is free, and the caller holds the lock; the length was checked.
        unsafe { (&mut (*tally.name.get()))[..task.len()].copy_from_slice(task) };
        tally.length.store(task.len() as u32, Ordering::Relaxed);
        tally.database.store(database, Ordering::Relaxed);
        Some(index)
    }

    /// Returns the index of the common tally of a database's tasks that have none of their own.
    fn common_index(&self, database: u32) -> Option<usize> {
        let slot = self.slot(database)?;
        self.others[slot]
            .database
            .store(database, Ordering::Relaxed);
        Some(TASKS + slot)
    }

    fn at(&self, index: usize) -> &TaskTally {
        match index.checked_sub(TASKS) {
            None => &self.tasks[index],
            Some(slot) => &self.others[slot],
        }
    }

    fn databases(&self) -> Vec<u32> {
        let tasks = self.tasks.iter().chain(&self.others);
        let tasks = tasks.map(|tally| &tally.database);
        let databases = self.databases.iter().map(|tally| &tally.database);
        tasks
            .chain(databases)
            .map(|database| database.load(Ordering::Relaxed))
            .filter(|&database| database != 0)
            .collect()
    }

    fn free(&mut self, gone: &[u32]) {
        for tally in self.tasks.iter_mut().chain(&mut self.others) {
            if gone.contains(tally.database.get_mut()) {
                *tally = TaskTally::free();
            }
        }
        for tally in &mut self.databases {
            if gone.contains(tally.database.get_mut()) {
                *tally = DatabaseTally::free();
            }
        }
    }
}

/// Returns the tally at an index that [`task_index`] returned.
pub(crate) fn task_tally(index: usize) -> &'static TaskTally {
    let mut all = ALL.load(Ordering::Relaxed);
    if all.is_null() {
        all = std::ptr::from_ref(&*TALLIES.share()).cast_mut();
        ALL.store(all, Ordering::Relaxed);
    }
    // SAFETY: in shared memory, which lives as long as the server; the fields that change are
    // atomic, except for the names, which are not read before their tallies are found.
    unsafe { &*all }.at(index)
}

/// Returns the tallies of the tasks of this process's database.
pub(crate) fn task_tallies() -> Vec<&'static TaskTally> {
    if !available() {
        return Vec::new();
    }
    let mine = my_database().to_u32();
    let indexes: Vec<usize> = {
        let tallies = TALLIES.share();
        (0..TASKS + SLOTS)
            .filter(|&index| tallies.at(index).is_of(mine))
            .collect()
    };
    indexes.into_iter().map(task_tally).collect()
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, BUCKETS, SLOTS, TASKS, TASKS_OF_ONE, bucket, empty_tallies};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_database_that_is_gone_leaves_its_place_empty() {
        let mut tallies = Box::new(empty_tallies());
        for database in 1..=SLOTS as u32 {
            let tally = tallies.database(database).expect("there is room");
            tally.cycles.fetch_add(7, Ordering::Relaxed);
        }
        assert!(tallies.database(1000).is_none());
        assert_eq!(tallies.databases().len(), SLOTS);
        tallies.free(&[5]);
        let cycles = |tally: &super::DatabaseTally| super::read(&tally.cycles);
        assert_eq!(tallies.database(1000).map(cycles), Some(0));
        assert_eq!(tallies.database(6).map(cycles), Some(7));
        assert!(tallies.database(5).is_none());
    }

    #[test]
    fn no_database_takes_what_the_others_need() {
        let tallies = Box::new(empty_tallies());
        let fill = |database: u32| {
            let index = |n: usize| tallies.task_index(database, &format!("task {n}"));
            (0..TASKS).filter_map(index).count()
        };
        assert_eq!(fill(1), TASKS_OF_ONE);
        for database in 2..=6 {
            assert!(fill(database) > 0, "database {database}");
        }
        assert_eq!(fill(1), TASKS_OF_ONE, "a task keeps its tally");
        let others: Vec<_> = (1..=SLOTS as u32)
            .map(|database| tallies.common_index(database))
            .collect();
        assert!(others.iter().all(Option::is_some));
        assert!(
            others
                .iter()
                .enumerate()
                .all(|(n, index)| *index == Some(TASKS + n))
        );
        assert!(tallies.at(TASKS).task().is_empty());
        assert!(tallies.task_index(2, &"x".repeat(300)).is_none());
    }

    #[test]
    fn a_length_of_time_is_in_the_first_bucket_that_holds_it() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(1_000), 0);
        assert_eq!(bucket(1_001), 1);
        assert_eq!(bucket(i64::MAX), BUCKETS - 1);
        assert!(BOUNDS.is_sorted());
    }
}
