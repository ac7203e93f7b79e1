//! All tables of the schema at once, for transactions that others must be able to stop without
//! being stopped by them.
//!
//! Who waits for a table while it holds another is in the way of whoever locks several of them in
//! one transaction, in an order of their own: `pg_restore --clean`, `alter table` upon `alter
//! table`, DROP EXTENSION. One of the two is then the victim of a deadlock, mostly the one that
//! cannot begin again by itself: of 75 restores over a database whose scheduler looked every 10 ms,
//! nine. So the tables are locked together or not at all, and who waits for one holds none. That
//! costs a cycle 0.16 ms.

use crate::server::catalog;
use pgrx::pg_sys;

/// A table that another has locked.
#[must_use]
pub(crate) struct LockedTable(pg_sys::Oid, u32);

/// Locks all tables until the transaction ends, partitions for reading; for its begin.
///
/// # Errors
/// The first that is not free: end the transaction, [`LockedTable::wait`] in another, begin again.
pub(crate) fn lock_all() -> Result<(), LockedTable> {
    for table in catalog::own_tables() {
        // SAFETY: a lookup inside a transaction.
        let is_partition = unsafe { pg_sys::get_rel_relispartition(table) };
        // Rows are added to few of them, and an index for reports is made in the others.
        let mode = match is_partition {
            true => pg_sys::AccessShareLock,
            false => pg_sys::RowExclusiveLock,
        };
        // SAFETY: inside a transaction; one that has been dropped meanwhile is locked in vain.
        if !unsafe { pg_sys::ConditionalLockRelationOid(table, mode as i32) } {
            return Err(LockedTable(table, mode));
        }
    }
    Ok(())
}

impl LockedTable {
    /// Waits until it is free, inside a transaction that has locked nothing and ends then.
    pub(crate) fn wait(self) {
        // SAFETY: inside a transaction.
        unsafe { pg_sys::LockRelationOid(self.0, self.1 as i32) };
    }
}
