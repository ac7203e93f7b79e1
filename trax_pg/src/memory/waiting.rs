//! Waiting: sessions that sleep until something happens, and how they are woken.
//!
//! A *subject* is the thing that a session waits for: work in this database, a token of one name,
//! the end of one job. A *wait* is a row of one table of shared memory: a subject and the latch of
//! the session that waits for it. To *ring* a subject wakes the sessions that wait for it.
//!
//! A session looks at the tables, and sleeps only if nothing has rung since before it looked; a
//! transaction rings after its commit. So either the session sees the change, or the ring wakes it.
//! For work and tokens a session reads the number of rings before its look. To sleep, it first adds
//! its wait and then reads the number again, while a ring first increments the number and then
//! searches the waits: either the session finds another number, or the ring finds the wait. For
//! jobs, which are many, a session adds its waits before it looks.
//!
//! A rollback rings, too, if the transaction had taken rows out of the queue or taken tokens: other
//! sessions may have passed over them.
//!
//! A ring costs two atomic operations while no session waits. Subjects are hashes: an equal hash of
//! two subjects, or an equal counter, wakes a session for nothing. A session that finds the table
//! full polls.

use super::area::Area;
use super::available;
use crate::server::backend::my_database;
use crate::server::hash::name_hash_64;
use crate::server::latch;
use crate::server::wait_event::WaitEvent;
use pgrx::{PgLwLock, pg_guard, pg_sys};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most waits at once, in all databases: 2 MiB.
const ENTRIES: usize = 1 << 16;
const CHAINS: usize = 1 << 15;
/// Counters of rings, which subjects share by hash.
const COUNTERS: usize = 1 << 12;
/// Longest sleep of a session for which the table has no room.
const POLL: Duration = Duration::from_millis(500);

/// A wait; a free entry is in the list of free entries.
struct Entry {
    subject: Subject,
    latch: *mut pg_sys::Latch,
    database: u32,
    /// The next entry of the chain, plus one; 0 at its end.
    next: u32,
    has_rung: AtomicBool,
}

pub(super) struct Waits {
    count: AtomicU32,
    /// How often each subject rang, by hash.
    rings: [AtomicU64; COUNTERS],
    /// How many entries have ever been used.
    used: u32,
    /// The first free entry among these, plus one.
    free: u32,
    chains: [u32; CHAINS],
    entries: [Entry; ENTRIES],
}

/// All zero is no wait.
pub(super) static WAITS: Area<Waits> = Area::zeroed(c"trax waits");
// SAFETY: no other lock has this name.
pub(super) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax waiting") };

/// A wait of this session for a job.
struct JobWait {
    index: u32,
    /// The session has looked at the job since it added the wait, or since the last ring.
    has_looked: bool,
}

thread_local! {
    static JOBS: RefCell<HashMap<i64, JobWait>> = RefCell::default();
    /// The entry of the wait for work or for a token while this session sleeps.
    static ASLEEP: Cell<Option<u32>> = const { Cell::new(None) };
}

static LEAVES_AT_EXIT: AtomicBool = AtomicBool::new(false);

/// A hash of the thing that a session of this database waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject(u64);

impl Subject {
    /// Returns the work of this database.
    pub(crate) fn work() -> Self {
        Self(name_hash_64(&["work"]))
    }

    /// Returns the tokens of a name.
    pub(crate) fn token(name: &str) -> Self {
        Self(name_hash_64(&["token", name]))
    }

    /// Returns all subjects of this database.
    fn all() -> Self {
        Self(name_hash_64(&["all"]))
    }

    fn job(database: u32, job_id: i64) -> Self {
        let mixed = (job_id as u64 ^ u64::from(database) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ mixed >> 32)
    }

    fn chain(self) -> usize {
        self.0 as usize % CHAINS
    }

    /// Returns a number that grows with each ring; to be read before a look at the tables.
    pub(crate) fn rings(self) -> u64 {
        WAITS.get().map_or(0, |waits| self.rings_in(waits))
    }

    fn rings_in(self, waits: &Waits) -> u64 {
        let rings = [self, Self::all()].map(|subject| subject.counter(waits));
        let [own, of_all] = rings.map(|counter| counter.load(Ordering::SeqCst));
        own.wrapping_add(of_all)
    }

    fn counter(self, waits: &Waits) -> &AtomicU64 {
        &waits.rings[self.0 as usize % COUNTERS]
    }

    /// Wakes the sessions that wait for it; after the commit.
    pub(crate) fn ring(self) {
        if let Some(waits) = WAITS.get() {
            self.counter(waits).fetch_add(1, Ordering::SeqCst);
            shared(|waits| waits.ring(self));
        }
    }

    /// Sleeps until the subject has rung since there were so many `rings`, at most for `timeout`.
    /// An interrupt ends it with an error.
    pub(crate) fn wait_while(self, rings: u64, timeout: Duration, event: WaitEvent) {
        if timeout.is_zero() || self.rings() != rings {
            return;
        }
        let deadline = Instant::now() + timeout;
        let wait = Sleep::begin(self);
        let Some(waits) = WAITS.get().filter(|_| wait.is_some()) else {
            return latch::sleep(timeout.min(POLL), event);
        };
        while self.rings_in(waits) == rings {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            latch::wait(left, event);
            pgrx::check_for_interrupts!();
        }
    }
}

/// The wait of a session that sleeps; removes itself when it is dropped, also by an error.
struct Sleep;

impl Sleep {
    fn begin(subject: Subject) -> Option<Self> {
        leave_at_exit();
        let index = exclusive(|waits| waits.add(subject, my_database().to_u32(), my_latch()));
        ASLEEP.set(index.flatten());
        ASLEEP.get().map(|_| Self)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(index) = ASLEEP.take() {
            exclusive(|waits| waits.remove(index));
        }
    }
}

fn my_latch() -> *mut pg_sys::Latch {
    // SAFETY: the latch of this process, in shared memory.
    unsafe { pg_sys::MyLatch }
}

/// Runs `work` under the exclusive lock; returns `None` without shared memory.
fn exclusive<T>(work: impl FnOnce(&mut Waits) -> T) -> Option<T> {
    let waits = WAITS.start();
    if waits.is_null() {
        return None;
    }
    let _lock = LOCK.exclusive();
    // SAFETY: the lock is exclusive; fields that are read without it are atomic.
    Some(work(unsafe { &mut *waits }))
}

/// Runs `work` under the shared lock if there are waits.
fn shared(work: impl FnOnce(&Waits)) {
    if let Some(waits) = WAITS.get()
        && waits.count.load(Ordering::SeqCst) > 0
    {
        let _lock = LOCK.share();
        work(waits);
    }
}

impl Waits {
    fn add(&mut self, subject: Subject, database: u32, latch: *mut pg_sys::Latch) -> Option<u32> {
        let index = match self.free {
            0 if self.used as usize == ENTRIES => return None,
            0 => {
                self.used += 1;
                self.used - 1
            }
            free => {
                self.free = self.entries[free as usize - 1].next;
                free - 1
            }
        };
        let entry = &mut self.entries[index as usize];
        entry.subject = subject;
        entry.latch = latch;
        entry.database = database;
        entry.next = self.chains[subject.chain()];
        entry.has_rung.store(false, Ordering::SeqCst);
        self.chains[subject.chain()] = index + 1;
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(index)
    }

    fn remove(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let (chain, next) = (entry.subject.chain(), entry.next);
        if self.chains[chain] == index + 1 {
            self.chains[chain] = next;
        } else {
            let mut at = self.chains[chain];
            while at != 0 && self.entries[at as usize - 1].next != index + 1 {
                at = self.entries[at as usize - 1].next;
            }
            if at != 0 {
                self.entries[at as usize - 1].next = next;
            }
        }
        let entry = &mut self.entries[index as usize];
        entry.database = 0;
        entry.next = self.free;
        self.free = index + 1;
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn ring(&self, subject: Subject) {
        let mut at = self.chains[subject.chain()];
        while at != 0 {
            let entry = &self.entries[at as usize - 1];
            if entry.subject == subject {
                entry.ring();
            }
            at = entry.next;
        }
    }

    fn ring_all(&self, database: u32) {
        let used = self.entries.iter().take(self.used as usize);
        used.filter(|entry| entry.database == database)
            .for_each(Entry::ring);
    }
}

impl Entry {
    fn ring(&self) {
        self.has_rung.store(true, Ordering::SeqCst);
        // SAFETY: a latch in shared memory; after a new owner has taken it, that one wakes once for
        // nothing.
        unsafe { pg_sys::SetLatch(self.latch) };
    }
}

/// Wakes all sessions of this database that wait for anything.
pub(crate) fn ring_all() {
    if let Some(waits) = WAITS.get() {
        Subject::all().counter(waits).fetch_add(1, Ordering::SeqCst);
        shared(|waits| waits.ring_all(my_database().to_u32()));
    }
}

/// Wakes the sessions that wait for one of these jobs, which have ended; after the commit.
pub(crate) fn jobs_ended(job_ids: &[i64]) {
    if !job_ids.is_empty() {
        let database = my_database().to_u32();
        let jobs = job_ids.iter().map(|&id| Subject::job(database, id));
        shared(|waits| jobs.for_each(|job| waits.ring(job)));
    }
}

/// Makes these, and no others, the jobs that this session waits for.
pub(crate) fn wait_for_jobs(job_ids: &[i64]) {
    if !available() {
        return;
    }
    leave_at_exit();
    JOBS.with_borrow_mut(|mine| {
        let wanted: HashSet<i64> = job_ids.iter().copied().collect();
        if wanted.len() == mine.len() && wanted.iter().all(|id| mine.contains_key(id)) {
            return;
        }
        let database = my_database().to_u32();
        // Allocated outside the lock, because an allocation may fail.
        mine.reserve(wanted.len());
        exclusive(|waits| {
            mine.retain(|id, wait| {
                let stays = wanted.contains(id);
                if !stays {
                    waits.remove(wait.index);
                }
                stays
            });
            for id in wanted {
                if !mine.contains_key(&id)
                    && let Some(index) = waits.add(Subject::job(database, id), database, my_latch())
                {
                    let has_looked = false;
                    mine.insert(id, JobWait { index, has_looked });
                }
            }
        });
    });
}

/// Removes the waits of this session for these jobs.
pub(crate) fn forget_jobs(job_ids: &[i64]) {
    JOBS.with_borrow_mut(|mine| {
        let known = job_ids.iter().filter_map(|id| mine.remove(id));
        let indexes: Vec<u32> = known.map(|wait| wait.index).collect();
        if !indexes.is_empty() {
            exclusive(|waits| indexes.iter().for_each(|index| waits.remove(*index)));
        }
    });
}

/// Returns the jobs that the session must look at: those that have rung or that it has not looked
/// at, and those without a wait.
pub(crate) fn jobs_to_look_at(job_ids: &[i64]) -> Vec<i64> {
    JOBS.with_borrow_mut(|mine| {
        let waits = WAITS.get();
        let is_due = |id: &&i64| {
            let (Some(waits), Some(wait)) = (waits, mine.get_mut(*id)) else {
                return true;
            };
            // Before the look: a job that ends after it rings again.
            let entry = &waits.entries[wait.index as usize];
            let rang = entry.has_rung.swap(false, Ordering::SeqCst);
            wait.has_looked &= !rang;
            !wait.has_looked
        };
        job_ids.iter().filter(is_due).copied().collect()
    })
}

/// Notes that this session has looked at these jobs, and they have not ended.
pub(crate) fn looked_at_jobs(job_ids: &[i64]) {
    JOBS.with_borrow_mut(|mine| {
        for id in job_ids {
            if let Some(wait) = mine.get_mut(id) {
                wait.has_looked = true;
            }
        }
    });
}

/// Returns whether a job that this session waits for has rung.
pub(crate) fn has_job_rung() -> bool {
    let Some(waits) = WAITS.get() else {
        return false;
    };
    JOBS.with_borrow(|mine| {
        let mut entries = mine
            .values()
            .map(|wait| &waits.entries[wait.index as usize]);
        entries.any(|entry| entry.has_rung.load(Ordering::SeqCst))
    })
}

/// Returns whether this session has a wait for each of the jobs.
pub(crate) fn waits_for_jobs(job_ids: &[i64]) -> bool {
    JOBS.with_borrow(|mine| job_ids.iter().all(|id| mine.contains_key(id)))
}

fn leave_at_exit() {
    if !LEAVES_AT_EXIT.swap(true, Ordering::Relaxed) {
        // SAFETY: the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) };
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    // SAFETY: the process ends; an error may have left the lock behind, which nothing else would
    // release.
    unsafe { pg_sys::LWLockReleaseAll() };
    let mine = JOBS.with(|mine| {
        mine.try_borrow_mut()
            .map(|mut mine| std::mem::take(&mut *mine))
    });
    let jobs = mine.unwrap_or_default();
    let indexes = jobs.values().map(|wait| wait.index).chain(ASLEEP.take());
    exclusive(|waits| indexes.for_each(|index| waits.remove(index)));
}
