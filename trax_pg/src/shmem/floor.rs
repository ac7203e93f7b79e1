//! Floors: where the live leases of what is limited begin.
//!
//! Words: a *floor* says, of one group, concurrency key, manifest or database, that no lease towards its limit has a
//! smaller job. Leases that have ended leave dead entries in the index, before the live ones, for as long as a snapshot is
//! held somewhere: a count that begins at the floor does not read them.
//!
//! Holds: a floor is never above a lease that counts.
//! - It is raised to the first lease that a count sees, by whoever holds the lock under which such leases are granted, and
//!   not past what its own transaction has ended.
//! - A claim lowers it to what it takes, under the same lock and before it adds the lease.
//! - What is not under that lock (leases written by hand, the end of a prepared transaction, a limit set for what runs, a
//!   claim beside the database's limit) makes floors void: who counted before that must not raise them.
//!
//! A floor that another has taken the place of, or that a restart has lost, is absent: leases are read from the beginning.

use super::available;
use pgrx::PgSharedMemoryInitialization;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

/// How many floors there are, of all databases; 16 bytes each.
const FLOORS: usize = 65_536;
/// Counts of what makes floors void, by hash of what they are of; the first is of all.
const VOIDS: usize = 256;

/// All zero is empty.
#[repr(C)]
struct Memory {
    voids: [AtomicU64; VOIDS],
    job_id: [AtomicI64; FLOORS],
    /// Of whom it is, as [`Floor::check`] makes it: two that write to one place at once leave what is nobody's.
    check: [AtomicU64; FLOORS],
}

/// The memory, found by the postmaster and inherited by every process.
struct Place(AtomicPtr<Memory>);

static MEMORY: Place = Place(AtomicPtr::new(std::ptr::null_mut()));

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
                c"trax floors".as_ptr(),
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
}

fn memory() -> Option<&'static Memory> {
    if !available() {
        return None;
    }
    // SAFETY: null or the memory, which lives as long as the server.
    unsafe { MEMORY.0.load(Ordering::Relaxed).as_ref() }
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
    tag: u64,
    void: usize,
}

/// A floor as it was before a count took its snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// No lease that counts has a smaller job.
    pub(crate) from: i64,
    voids: u64,
}

impl Floor {
    /// That of this database's thing with the hash `of`, which is another for each kind of things.
    pub(crate) fn of(of: u64) -> Self {
        let tag = mixed(of ^ mixed(u64::from(Self::here())));
        let void = 1 + tag as usize % (VOIDS / 2 - 1);
        Self { tag, void }
    }

    /// That of this database's limit.
    pub(crate) fn of_database() -> Self {
        let tag = mixed(u64::from(Self::here()));
        let void = VOIDS / 2 + tag as usize % (VOIDS / 2);
        Self { tag, void }
    }

    fn here() -> u32 {
        // SAFETY: a plain number of this backend.
        unsafe { pg_sys::MyDatabaseId }.to_u32()
    }

    fn place(self) -> usize {
        (self.tag >> 40) as usize % FLOORS
    }

    fn voids(self, memory: &Memory) -> u64 {
        let [all, of] = [0, self.void].map(|void| memory.voids[void].load(Ordering::SeqCst));
        mixed(all).wrapping_add(of)
    }

    /// Never zero.
    fn check(self, job_id: i64, voids: u64) -> u64 {
        mixed(self.tag ^ mixed(job_id as u64 ^ mixed(voids))) | 1
    }

    /// To be read before the snapshot of a count is taken.
    pub(crate) fn known(self) -> Known {
        let absent = |voids| Known {
            from: i64::MIN,
            voids,
        };
        let Some(memory) = memory() else {
            return absent(0);
        };
        let (voids, place) = (self.voids(memory), self.place());
        let check = memory.check[place].load(Ordering::SeqCst);
        let from = memory.job_id[place].load(Ordering::SeqCst);
        if check == self.check(from, voids) {
            Known { from, voids }
        } else {
            absent(voids)
        }
    }

    /// Raises it to what a count has found since `known`. The caller holds the lock of what is counted.
    pub(crate) fn raise(self, known: Known, job_id: i64) {
        if job_id != known.from {
            self.write(known.voids, job_id);
        }
    }

    /// Lowers it to a job that is being claimed. The caller holds the lock of what is claimed.
    pub(crate) fn lower(self, job_id: i64) {
        let known = self.known();
        if job_id < known.from {
            self.write(known.voids, job_id);
        }
    }

    fn write(self, voids: u64, job_id: i64) {
        let Some(memory) = memory() else { return };
        let place = self.place();
        // What it said before is gone before it says another thing.
        memory.check[place].store(0, Ordering::SeqCst);
        memory.job_id[place].store(job_id, Ordering::SeqCst);
        memory.check[place].store(self.check(job_id, voids), Ordering::SeqCst);
    }

    /// Makes it void, with a few others.
    pub(crate) fn forget(self) {
        if let Some(memory) = memory() {
            memory.voids[self.void].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Makes all floors void.
pub(super) fn forget() {
    if let Some(memory) = memory() {
        memory.voids[0].fetch_add(1, Ordering::SeqCst);
    }
}
