//! Prepared transactions that changed something of ours, until they end: what it was, for the
//! session that ends them.

use super::{Section, available};
use pgrx::pg_sys;
use pgrx::{PgLwLock, PgSharedMemoryInitialization};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Of a transaction with more sections only that is remembered.
const SECTIONS: usize = 8;

/// What a prepared transaction makes claimable: sections, from these jobs on; `None` when there are
/// more than have room, or nobody knows which.
pub(crate) type Claimable = Option<[Option<(Section, i64)>; SECTIONS]>;

/// What these rows say of it.
pub(crate) fn claimable(mut rows: impl ExactSizeIterator<Item = (Section, i64)>) -> Claimable {
    (rows.len() <= SECTIONS).then(|| std::array::from_fn(|_| rows.next()))
}

/// What a prepared transaction does when it ends.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    database: u32,
    /// A hash of its name.
    name: u64,
    pub(crate) claimable: Claimable,
    /// It configures groups.
    pub(crate) configured: bool,
}

/// The places, as many as the server has for prepared transactions; found by the postmaster and
/// inherited.
struct Places(AtomicPtr<Option<Prepared>>);

static PLACES: Places = Places(AtomicPtr::new(std::ptr::null_mut()));
// SAFETY: no other lock has this name.
static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax prepared") };

unsafe extern "C" {
    /// `max_prepared_transactions`, which only a start of the server changes.
    static max_prepared_xacts: std::ffi::c_int;
}

fn count() -> usize {
    // SAFETY: a plain number.
    unsafe { max_prepared_xacts }.max(0) as usize
}

fn bytes() -> usize {
    count().max(1) * size_of::<Option<Prepared>>()
}

impl PgSharedMemoryInitialization for Places {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: called from the hook.
        unsafe { pg_sys::RequestAddinShmemSpace(bytes()) }
    }

    unsafe fn on_shmem_startup(&'static self, _value: ()) {
        let mut found = false;
        // SAFETY: called from the hook in the postmaster, which is alone.
        unsafe {
            let name = c"trax prepared transactions".as_ptr();
            let places = pg_sys::ShmemInitStruct(name, bytes(), &raw mut found);
            let places = places.cast::<Option<Prepared>>();
            if !found {
                for place in 0..count() {
                    places.add(place).write(None);
                }
            }
            self.0.store(places, Ordering::Relaxed);
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
    pg_shmem_init!(PLACES = ());
    pg_shmem_init!(LOCK = 0);
}

fn write<T>(work: impl FnOnce(&mut [Option<Prepared>]) -> T) -> Option<T> {
    let places = PLACES.0.load(Ordering::Relaxed);
    if !available() || places.is_null() {
        return None;
    }
    let _lock = LOCK.exclusive();
    // SAFETY: so many were made, and the lock is exclusive.
    Some(work(unsafe {
        std::slice::from_raw_parts_mut(places, count())
    }))
}

fn database() -> u32 {
    // SAFETY: a plain number.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// This session's transaction has been prepared under a name with this hash.
pub(crate) fn remember(name: u64, claimable: Claimable, configured: bool) {
    let prepared = Prepared {
        database: database(),
        name,
        claimable,
        configured,
    };
    write(|places| {
        // There is a place for each that the server can have, unless the end of one passed us by.
        if let Some(place) = places.iter_mut().find(|place| place.is_none()) {
            *place = Some(prepared);
        }
    });
}

/// What is known of a prepared transaction of this database that has ended.
pub(crate) fn take(name: u64) -> Option<Prepared> {
    let database = database();
    write(|places| {
        let is_it = |known: &Prepared| known.name == name && known.database == database;
        let mut places = places.iter_mut();
        places
            .find(|place| place.as_ref().is_some_and(is_it))
            .and_then(Option::take)
    })?
}
