//! The jobs whose end somebody waits for: whoever ends one wakes exactly those sessions.
//!
//! Words: a *wait* is one session's interest in one job; it *rings* when the job may have ended.
//! A session makes its wait before it looks at the tables, and whoever ends a job looks for waits
//! after its commit: one of the two sees the other. While nobody waits an end costs one read of a
//! number. Waits live until their session drops them or ends. When all places are taken, what has
//! none is not rung for.

use super::area::Area;
use super::available;
use crate::server::backend::my_database;
use pgrx::{PgLwLock, pg_guard, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most waits at once, in all databases: 2 MiB.
const PLACES: usize = 1 << 16;
const CHAINS: usize = 1 << 15;

/// A wait; a place that is free stands in the list of those.
struct Place {
    job_id: i64,
    latch: *mut pg_sys::Latch,
    database: u32,
    /// The next place of the chain, plus one; 0 is none.
    next: u32,
    has_rung: AtomicBool,
}

pub(super) struct Waits {
    count: AtomicU32,
    /// How many places have ever been used.
    used: u32,
    /// The first free one of those, plus one.
    free: u32,
    chains: [u32; CHAINS],
    places: [Place; PLACES],
}

/// All zero is no wait.
pub(super) static WAITS: Area<Waits> = Area::zeroed(c"trax awaited jobs");
// SAFETY: no other lock has this name.
pub(super) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax awaited") };

/// A wait of this session.
struct Mine {
    place: u32,
    /// It has looked since the wait was made, or rang.
    has_looked: bool,
}

thread_local! {
    static MINE: RefCell<HashMap<i64, Mine>> = RefCell::default();
}

static LEAVES_AT_EXIT: AtomicBool = AtomicBool::new(false);

fn chain_of(database: u32, job_id: i64) -> usize {
    let mixed = (job_id as u64 ^ u64::from(database) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % CHAINS
}

/// Works on the waits while nobody else does; `None` without shared memory.
fn alone<T>(work: impl FnOnce(&mut Waits) -> T) -> Option<T> {
    let waits = WAITS.start();
    if waits.is_null() {
        return None;
    }
    let _lock = LOCK.exclusive();
    // SAFETY: the lock is exclusive; what is read without it is atomic.
    Some(work(unsafe { &mut *waits }))
}

impl Waits {
    fn add(&mut self, database: u32, job_id: i64, latch: *mut pg_sys::Latch) -> Option<u32> {
        let place = match self.free {
            0 if self.used as usize == PLACES => return None,
            0 => {
                self.used += 1;
                self.used - 1
            }
            free => {
                self.free = self.places[free as usize - 1].next;
                free - 1
            }
        };
        let chain = chain_of(database, job_id);
        let entry = &mut self.places[place as usize];
        entry.job_id = job_id;
        entry.latch = latch;
        entry.database = database;
        entry.next = self.chains[chain];
        entry.has_rung.store(false, Ordering::SeqCst);
        self.chains[chain] = place + 1;
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(place)
    }

    fn remove(&mut self, place: u32) {
        let entry = &self.places[place as usize];
        let (chain, next) = (chain_of(entry.database, entry.job_id), entry.next);
        if self.chains[chain] == place + 1 {
            self.chains[chain] = next;
        } else {
            let mut at = self.chains[chain];
            while at != 0 && self.places[at as usize - 1].next != place + 1 {
                at = self.places[at as usize - 1].next;
            }
            if at != 0 {
                self.places[at as usize - 1].next = next;
            }
        }
        let entry = &mut self.places[place as usize];
        entry.database = 0;
        entry.next = self.free;
        self.free = place + 1;
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn ring(&self, database: u32, job_id: i64) {
        let mut at = self.chains[chain_of(database, job_id)];
        while at != 0 {
            let place = &self.places[at as usize - 1];
            if place.job_id == job_id && place.database == database {
                place.ring();
            }
            at = place.next;
        }
    }

    fn ring_all(&self, database: u32) {
        let used = self.places.iter().take(self.used as usize);
        used.filter(|place| place.database == database)
            .for_each(Place::ring);
    }
}

impl Place {
    fn ring(&self) {
        if !self.has_rung.swap(true, Ordering::SeqCst) {
            // SAFETY: a latch in shared memory; one with a new owner wakes that once for nothing.
            unsafe { pg_sys::SetLatch(self.latch) };
        }
    }
}

/// Works on the waits if there are any; other ends of jobs may do so at the same time.
fn together(work: impl FnOnce(&Waits, u32)) {
    if let Some(waits) = WAITS.get()
        && waits.count.load(Ordering::SeqCst) > 0
    {
        let _lock = LOCK.share();
        work(waits, my_database().to_u32());
    }
}

/// Rings for jobs that have ended; after the commit.
pub(crate) fn ended(job_ids: &[i64]) {
    if !job_ids.is_empty() {
        together(|waits, database| job_ids.iter().for_each(|id| waits.ring(database, *id)));
    }
}

/// Rings for all jobs: any may have ended.
pub(crate) fn any_ended() {
    together(Waits::ring_all);
}

/// Makes these, and no others, the jobs that this session waits for.
pub(crate) fn wait_for(job_ids: &[i64]) {
    if !available() {
        return;
    }
    if !LEAVES_AT_EXIT.swap(true, Ordering::Relaxed) {
        // SAFETY: the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) };
    }
    MINE.with_borrow_mut(|mine| {
        let wanted: std::collections::HashSet<i64> = job_ids.iter().copied().collect();
        if wanted.len() == mine.len() && wanted.iter().all(|id| mine.contains_key(id)) {
            return;
        }
        let database = my_database().to_u32();
        // SAFETY: the latch of this process, in shared memory.
        let latch = unsafe { pg_sys::MyLatch };
        // Outside the lock, where memory may run out.
        mine.reserve(wanted.len());
        alone(|waits| {
            mine.retain(|id, wait| {
                let stays = wanted.contains(id);
                if !stays {
                    waits.remove(wait.place);
                }
                stays
            });
            for id in wanted {
                if !mine.contains_key(&id)
                    && let Some(place) = waits.add(database, id, latch)
                {
                    let has_looked = false;
                    mine.insert(id, Mine { place, has_looked });
                }
            }
        });
    });
}

/// Drops the waits of this session for these jobs.
pub(crate) fn forget(job_ids: &[i64]) {
    MINE.with_borrow_mut(|mine| {
        let known = job_ids.iter().filter_map(|id| mine.remove(id));
        let places: Vec<u32> = known.map(|wait| wait.place).collect();
        if !places.is_empty() {
            alone(|waits| places.iter().for_each(|place| waits.remove(*place)));
        }
    });
}

/// Returns which of the jobs are to be looked at: those that have rung, or were never looked at,
/// and those that have no place.
pub(crate) fn to_look_at(job_ids: &[i64]) -> Vec<i64> {
    MINE.with_borrow_mut(|mine| {
        let waits = WAITS.get();
        let is_due = |id: &&i64| {
            let (Some(waits), Some(wait)) = (waits, mine.get_mut(*id)) else {
                return true;
            };
            // Before the look: what ends after it rings again.
            let place = &waits.places[wait.place as usize];
            let rang = place.has_rung.swap(false, Ordering::SeqCst);
            wait.has_looked &= !rang;
            !wait.has_looked
        };
        job_ids.iter().filter(is_due).copied().collect()
    })
}

/// Notes that this session has looked at these jobs, and they have not ended.
pub(crate) fn looked_at(job_ids: &[i64]) {
    MINE.with_borrow_mut(|mine| {
        for id in job_ids {
            if let Some(wait) = mine.get_mut(id) {
                wait.has_looked = true;
            }
        }
    });
}

/// Returns whether a wait of this session has rung.
pub(crate) fn has_rung() -> bool {
    let Some(waits) = WAITS.get() else {
        return false;
    };
    MINE.with_borrow(|mine| {
        let mut places = mine.values().map(|wait| &waits.places[wait.place as usize]);
        places.any(|place| place.has_rung.load(Ordering::SeqCst))
    })
}

/// Returns whether each of the jobs has a place, so that its end wakes this session.
pub(crate) fn has_places(job_ids: &[i64]) -> bool {
    MINE.with_borrow(|mine| job_ids.iter().all(|id| mine.contains_key(id)))
}

#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    // SAFETY: the process ends; an error may have left the lock behind that nobody would release.
    unsafe { pg_sys::LWLockReleaseAll() };
    let mine = MINE.with(|mine| {
        mine.try_borrow_mut()
            .map(|mut mine| std::mem::take(&mut *mine))
    });
    if let Ok(mine) = mine {
        alone(|waits| mine.values().for_each(|wait| waits.remove(wait.place)));
    }
}
