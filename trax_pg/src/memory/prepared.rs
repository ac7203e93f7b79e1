//! Prepared transactions: the changes that must be published when they end.
//!
//! Another session ends a prepared transaction, perhaps much later. Until then its changes are
//! remembered here, and the first session that finds it ended publishes them (`changes.rs`).

use super::Section;
use super::area::Area;
use crate::server::backend::my_database;
use pgrx::{PgLwLock, pg_sys};

/// Most sections that are remembered of one transaction.
const SECTIONS: usize = 8;

/// The sections in which a prepared transaction makes rows claimable, each with the first job;
/// `None` if they are more than `SECTIONS`, or unknown.
pub(crate) type Claimable = Option<[Option<(Section, i64)>; SECTIONS]>;

/// Returns the sections of these rows, as they are remembered.
pub(crate) fn claimable(mut rows: impl ExactSizeIterator<Item = (Section, i64)>) -> Claimable {
    (rows.len() <= SECTIONS).then(|| std::array::from_fn(|_| rows.next()))
}

/// The changes that a prepared transaction makes when it ends.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    database: u32,
    transaction: pg_sys::TransactionId,
    /// A hash of its name; 0 when no statement prepared it.
    pub(crate) name: u64,
    pub(crate) claimable: Claimable,
    /// Groups were configured.
    pub(crate) configured: bool,
}

/// The entries, as many as the server has for prepared transactions.
pub(super) static PREPARED: Area<Option<Prepared>> =
    Area::new(c"trax prepared transactions", bytes, begin);
// SAFETY: no other lock has this name.
pub(super) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax prepared") };

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

unsafe fn begin(entries: *mut Option<Prepared>) {
    for index in 0..count() {
        // SAFETY: passed on to the caller: there is room for them.
        unsafe { entries.add(index).write(None) };
    }
}

fn write<T>(work: impl FnOnce(&mut [Option<Prepared>]) -> T) -> Option<T> {
    let entries = PREPARED.start();
    if entries.is_null() {
        return None;
    }
    let _lock = LOCK.exclusive();
    // SAFETY: the area has `count()` entries, and the lock is exclusive.
    Some(work(unsafe {
        std::slice::from_raw_parts_mut(entries, count())
    }))
}

/// Remembers that this session's transaction was prepared under a name with this hash.
pub(crate) fn remember(name: u64, claimable: Claimable, configured: bool) {
    let prepared = Prepared {
        database: my_database().to_u32(),
        // SAFETY: the id of this backend's transaction, which is set until the callback returns.
        transaction: unsafe { pg_sys::GetTopTransactionIdIfAny() },
        name,
        claimable,
        configured,
    };
    write(|entries| {
        // There is an entry for each that the server can have. Some may still be taken by ended
        // ones of databases in which no session has looked since.
        let free = |entry: &Option<Prepared>| entry.as_ref().is_none_or(Prepared::has_ended);
        let free_entry = entries.iter().position(Option::is_none);
        if let Some(index) = free_entry.or_else(|| entries.iter().position(free)) {
            entries[index] = Some(prepared);
        }
    });
}

/// Returns the prepared transactions of this database that have ended. Each stays until [`forget`],
/// so that of two sessions that look at once neither continues before the changes are published.
pub(crate) fn ended() -> Vec<Prepared> {
    let database = my_database().to_u32();
    let known: Vec<Prepared> = write(|entries| {
        let known = entries.iter().flatten();
        known
            .filter(|one| one.database == database)
            .copied()
            .collect()
    })
    .unwrap_or_default();
    known.into_iter().filter(Prepared::has_ended).collect()
}

/// Forgets a prepared transaction that has ended, after its changes were published.
pub(crate) fn forget(ended: &Prepared) {
    write(|entries| {
        for entry in entries {
            if entry
                .as_ref()
                .is_some_and(|one| one.transaction == ended.transaction)
            {
                *entry = None;
            }
        }
    });
}

impl Prepared {
    fn has_ended(&self) -> bool {
        // SAFETY: reads shared memory of the server, inside a transaction.
        !unsafe { pg_sys::TransactionIdIsInProgress(self.transaction) }
    }
}
