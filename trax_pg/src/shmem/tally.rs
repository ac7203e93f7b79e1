//! Tallies: what happened since the server started, by database and by task.
//!
//! Hints for `trax.metrics()`: they begin again at zero with the server, nothing decides by them, and a database or a task
//! beyond the last place is not counted by itself. A place once given to a database stays its own until that is gone.

use super::{SLOTS, available, forget_dropped};
use pgrx::pg_sys;
use pgrx::{PGRXSharedMemory, PgLwLock};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// How many tasks of all databases have a place.
pub(crate) const TASKS: usize = 512;
/// How many of them one database may take; the last one is for the tasks that have none.
const TASKS_OF_ONE: usize = 200;
const NAME_BYTES: usize = 255;

/// Upper bounds of the histograms' buckets, in microseconds; one more has no bound.
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

/// How many ways an attempt can end; see `tally::Outcome`.
pub(crate) const OUTCOMES: usize = 6;
/// How many calls can be refused because the lease is lost; see `tally::Stale`.
pub(crate) const STALE: usize = 6;

/// How long things took.
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

    /// How many fell into each bucket, and the sum in microseconds.
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

/// The bucket of a length of time.
pub(crate) fn bucket(micros: i64) -> usize {
    BOUNDS.partition_point(|bound| *bound < micros)
}

/// What happened to the jobs of one task in one database.
pub(crate) struct TaskTally {
    database: AtomicU32,
    length: AtomicU32,
    name: UnsafeCell<[u8; NAME_BYTES]>,
    pub(crate) claims: AtomicU64,
    /// When the last claim was, as `timestamptz`; 0 is never.
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

    /// The task; empty for those that have no place of their own.
    pub(crate) fn task(&self) -> &[u8] {
        let length = self.length.load(Ordering::Relaxed) as usize;
        // SAFETY: written once, under the lock, before anybody can find the place.
        unsafe { &(&(*self.name.get()))[..length] }
    }
}

/// What happened in one database.
pub(crate) struct DatabaseTally {
    database: AtomicU32,
    pub(crate) stale: [AtomicU64; STALE],
    pub(crate) cycles: AtomicU64,
    pub(crate) cycle_micros: AtomicU64,
    /// When the last cycle began, as `timestamptz`; 0 is never.
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
    databases: [DatabaseTally; SLOTS],
}

// SAFETY: atomics, and names that are written under the lock only.
unsafe impl PGRXSharedMemory for Tallies {}

// SAFETY: no other lock has this name.
pub(super) static TALLIES: PgLwLock<Tallies> = unsafe { PgLwLock::new(c"trax tallies") };

/// The tally of this process's database, once found.
static DATABASE: AtomicPtr<DatabaseTally> = AtomicPtr::new(std::ptr::null_mut());

/// Where the tallies of tasks begin, once asked for.
static FIRST_TASK: AtomicPtr<TaskTally> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn empty_tallies() -> Tallies {
    Tallies {
        tasks: [const { TaskTally::free() }; TASKS],
        databases: [const { DatabaseTally::free() }; SLOTS],
    }
}

/// Adds to a counter, and touches it only when there is something to add.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn my_database() -> u32 {
    // SAFETY: a plain number.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// The tally of this process's database; `None` without shared memory and when all are given. Inside a transaction only.
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

/// Finds the tally of this process's database, or gives it one that is free.
fn take_database() -> Option<()> {
    let tallies = TALLIES.exclusive();
    let tally = tallies.database(my_database())?;
    DATABASE.store(std::ptr::from_ref(tally).cast_mut(), Ordering::Relaxed);
    Some(())
}

/// The tally of a task of this process's database, by place: its own, or that of all tasks without one. `None` when
/// not even that can be had. Inside a transaction only.
pub(crate) fn task_place(task: &str) -> Option<usize> {
    if !available() {
        return None;
    }
    let mine = my_database();
    if let Some(place) = find_or_take(mine, task.as_bytes()) {
        return Some(place);
    }
    forget_dropped();
    find_or_take(mine, task.as_bytes()).or_else(|| find_or_take(mine, b""))
}

fn find_or_take(database: u32, task: &[u8]) -> Option<usize> {
    let tallies = TALLIES.exclusive();
    let own = |tally: &&TaskTally| tally.is_of(database);
    if let Some(place) = tallies
        .tasks
        .iter()
        .position(|tally| own(&tally) && tally.task() == task)
    {
        return Some(place);
    }
    let taken = tallies.tasks.iter().filter(own).count();
    let room = if task.is_empty() {
        TASKS_OF_ONE
    } else {
        TASKS_OF_ONE - 1
    };
    if taken >= room || task.len() > NAME_BYTES {
        return None;
    }
    let place = tallies.tasks.iter().position(|tally| tally.is_of(0))?;
    let tally = &tallies.tasks[place];
    // SAFETY: the place is nobody's, and the lock is held; the length was checked.
    unsafe { (&mut (*tally.name.get()))[..task.len()].copy_from_slice(task) };
    tally.length.store(task.len() as u32, Ordering::Relaxed);
    tally.database.store(database, Ordering::Relaxed);
    Some(place)
}

/// The databases that have places.
pub(super) fn databases() -> Vec<u32> {
    TALLIES.share().databases()
}

/// Frees the places of databases that are gone.
pub(super) fn free(gone: &[u32]) {
    TALLIES.exclusive().free(gone);
}

impl Tallies {
    fn database(&self, database: u32) -> Option<&DatabaseTally> {
        let of = |wanted| {
            let holds =
                move |tally: &&DatabaseTally| tally.database.load(Ordering::Relaxed) == wanted;
            self.databases.iter().find(holds)
        };
        of(database).or_else(|| {
            let free = of(0)?;
            free.database.store(database, Ordering::Relaxed);
            Some(free)
        })
    }

    fn databases(&self) -> Vec<u32> {
        let tasks = self.tasks.iter().map(|tally| &tally.database);
        let databases = self.databases.iter().map(|tally| &tally.database);
        tasks
            .chain(databases)
            .map(|database| database.load(Ordering::Relaxed))
            .filter(|&database| database != 0)
            .collect()
    }

    fn free(&mut self, gone: &[u32]) {
        for tally in &mut self.tasks {
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

/// The tally at a place that [`task_place`] gave.
pub(crate) fn task_tally(place: usize) -> &'static TaskTally {
    let mut first = FIRST_TASK.load(Ordering::Relaxed);
    if first.is_null() {
        first = TALLIES.share().tasks.as_ptr().cast_mut();
        FIRST_TASK.store(first, Ordering::Relaxed);
    }
    assert!(place < TASKS, "a place that was given");
    // SAFETY: in shared memory, which lives as long as the server; all that changes in it is atomic.
    unsafe { &*first.add(place) }
}

/// The tallies of the tasks of this process's database.
pub(crate) fn task_tallies() -> Vec<&'static TaskTally> {
    if !available() {
        return Vec::new();
    }
    let mine = my_database();
    let places: Vec<usize> = {
        let tallies = TALLIES.share();
        (0..TASKS)
            .filter(|&place| tallies.tasks[place].is_of(mine))
            .collect()
    };
    places.into_iter().map(task_tally).collect()
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, BUCKETS, SLOTS, bucket, empty_tallies};
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
    fn a_length_of_time_is_in_the_first_bucket_that_holds_it() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(1_000), 0);
        assert_eq!(bucket(1_001), 1);
        assert_eq!(bucket(i64::MAX), BUCKETS - 1);
        assert!(BOUNDS.is_sorted());
    }
}
