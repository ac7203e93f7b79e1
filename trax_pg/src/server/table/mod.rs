//! Rows without statements: finds, takes and adds rows of the tables that every job goes through,
//! on the hot path.
//!
//! Makes the calls of the table and index access methods that executor nodes make, without the
//! nodes, without copies of rows between them, and with one WAL record for the rows that land in
//! one page. A job claimed and completed in batches of 100 costs 7.9 µs of the server's time and
//! 891 B of WAL this way; by statements it was 13.7 µs and 1,038 B.
//!
//! Holds: everything goes through the access methods, so that indexes (also an administrator's),
//! TOAST, serializable reads, logical decoding and table statistics work as with a statement. The
//! extension's own check constraints are not evaluated: each insert must satisfy them, and the
//! tests run with the constraints in force. Others are evaluated. Where something requires a
//! statement ([`direct_write`]: triggers, rules, row security, added columns), the rows of a call
//! are written by one, so that tools that copy a table by triggers, such as pg_repack, miss none.
//! The transaction's resource owner owns everything that is open, so that an error leaks nothing.

mod by_statement;
mod direct_write;
mod insert;
mod known;
mod lock_all;
mod partition;
mod scan;
mod stored_rows;
mod unguarded;
mod update;
mod walk;

use crate::error::Error;
pub(crate) use by_statement::ctid_of;
pub(crate) use direct_write::{Write, obstacle_of};
pub(crate) use insert::Inserter;
use known::Direct;
use known::relation_oid;
pub(crate) use lock_all::{LockedTable, lock_all};
pub(crate) use partition::history_obstacle;
use pgrx::{direct_function_call, pg_sys};
pub(crate) use scan::{Index, Key, Row, Scan, View, Written};
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::sync::Once;
pub(crate) use stored_rows::StoredRows;
use unguarded::guarded;
pub(crate) use update::Updater;
pub(crate) use walk::Walk;

/// Names the columns of a table in their order, for [`Table::open`] and for reading and writing its
/// rows.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident in $table:literal { $($column:ident: $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[allow(clippy::enum_variant_names, reason = "columns have their names from the table")]
        #[allow(dead_code, reason = "all columns have a position, also those that only statements read")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub(crate) enum $name { $($column),* }

        impl $name {
            pub(crate) const TABLE: &'static std::ffi::CStr = $table;
            pub(crate) const ALL: &'static [&'static std::ffi::CStr] = &[$($text),*];
        }

        impl From<$name> for usize {
            fn from(column: $name) -> usize {
                column as usize
            }
        }
    };
}
pub(crate) use columns;

/// Freed memory that a session keeps for its next call, in bytes. With the C library's 128 kB each
/// call of 100 jobs takes its memory from the kernel and returns it: brk and page faults were 5 %
/// of a drain's time.
const MEMORY_KEPT: i32 = 4 << 20;

/// The server asserts these methods for each table access method and each kind of slot.
const METHOD: &str = "a method that all have";

static KEEP_MEMORY: Once = Once::new();

fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers of the C library's allocator in this process.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, MEMORY_KEPT);
        // Otherwise blocks of this size would be mapped and unmapped each time.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MEMORY_KEPT);
    }
}

/// A table of the extension, locked for changes of its rows until the transaction ends.
pub(crate) struct Table {
    relation: pg_sys::Relation,
    name: &'static CStr,
    columns: &'static [&'static CStr],
    /// How its rows are written without statements.
    direct: Direct,
    /// No publication refuses deletes.
    may_delete: Cell<bool>,
    /// Locked rows, which a statement deletes when the table is closed.
    to_delete: RefCell<Vec<pg_sys::ItemPointerData>>,
}

impl Table {
    /// Opens `trax.<name>`, which has these columns.
    pub(crate) fn open(name: &'static CStr, columns: &'static [&'static CStr]) -> Self {
        KEEP_MEMORY.call_once(keep_memory);
        let oid = relation_oid(name);
        if oid == pg_sys::InvalidOid {
            refuse(name, "there is no such table");
        }
        // SAFETY: a relation of the extension, which the lock keeps.
        let relation = unsafe { pg_sys::table_open(oid, pg_sys::RowExclusiveLock as i32) };
        Self::of(relation, name, columns)
    }

    /// Returns the table of an open relation, or an error when it does not match this library.
    fn of(
        relation: pg_sys::Relation,
        name: &'static CStr,
        columns: &'static [&'static CStr],
    ) -> Self {
        if let Err(found) = direct_write::has_columns(relation, columns) {
            refuse(name, &found);
        }
        Self {
            relation,
            name,
            columns,
            direct: direct_write::direct(relation, columns),
            may_delete: Cell::new(false),
            to_delete: RefCell::default(),
        }
    }

    fn slot(&self) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the relation is open; the slot lives in the current memory context.
        unsafe { pg_sys::table_slot_create(self.relation, std::ptr::null_mut()) }
    }

    /// Deletes the row at `tid`, which `view` sees; if another transaction has it, waits or returns
    /// [`Taken::Busy`].
    pub(crate) fn delete(&self, tid: pg_sys::ItemPointerData, view: &View, wait: bool) -> Taken {
        if !self.direct.delete {
            return self.delete_in_the_end(tid, view, wait);
        }
        let mut tid = tid;
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: the tid is that of a row of this table; a read-only transaction is refused, as
        // for a statement.
        let result = unsafe {
            if !self.may_delete.get() {
                pg_sys::PreventCommandIfReadOnly(c"DELETE".as_ptr());
                pg_sys::CheckCmdReplicaIdentity(self.relation, pg_sys::CmdType::CMD_DELETE);
                self.may_delete.set(true);
            }
            let (relation, snapshot) = (self.relation, view.snapshot);
            let (tid, failure) = (&raw mut tid, &raw mut failure);
            let delete = (*(*relation).rd_tableam).tuple_delete.expect(METHOD);
            guarded(|| {
                let command = unguarded::GetCurrentCommandId(true);
                let none = std::ptr::null_mut();
                delete(relation, tid, command, snapshot, none, wait, failure, false)
            })
        };
        Taken::of(result)
    }

    /// Deletes the row at `tid`, which `view` sees, unless another transaction has it; returns
    /// false when it does, or has changed it.
    pub(crate) fn delete_if_free(&self, tid: pg_sys::ItemPointerData, view: &View) -> bool {
        match self.delete(tid, view, false) {
            Taken::Yes => true,
            // A lock of this transaction, which the new version of a row inherits, looks like
            // another transaction's.
            Taken::Busy => {
                self.lock_if_free(tid, view) && self.delete(tid, view, true) == Taken::Yes
            }
            Taken::No | Taken::Changed => false,
        }
    }

    /// Locks the row for the statement that deletes it when the table is closed.
    fn delete_in_the_end(&self, tid: pg_sys::ItemPointerData, view: &View, wait: bool) -> Taken {
        let policy = if wait {
            pg_sys::LockWaitPolicy::LockWaitBlock
        } else {
            pg_sys::LockWaitPolicy::LockWaitSkip
        };
        let taken = self.lock(tid, view, RowLock::Update, policy);
        if taken == Taken::Yes {
            self.to_delete.borrow_mut().push(tid);
        }
        taken
    }

    /// Locks the row at `tid` unless another transaction has it; returns false when it does, or has
    /// changed it.
    pub(crate) fn lock_if_free(&self, tid: pg_sys::ItemPointerData, view: &View) -> bool {
        let policy = pg_sys::LockWaitPolicy::LockWaitSkip;
        self.lock(tid, view, RowLock::Update, policy) == Taken::Yes
    }

    /// Locks the row at `tid`, which `view` sees; waits for transactions that have it.
    pub(crate) fn keep(&self, tid: pg_sys::ItemPointerData, view: &View, lock: RowLock) -> Taken {
        self.lock(tid, view, lock, pg_sys::LockWaitPolicy::LockWaitBlock)
    }

    fn lock(
        &self,
        tid: pg_sys::ItemPointerData,
        view: &View,
        lock: RowLock,
        policy: pg_sys::LockWaitPolicy::Type,
    ) -> Taken {
        let mut tid = tid;
        let mut failure = pg_sys::TM_FailureData::default();
        let slot = self.slot();
        // SAFETY: the tid is that of a row of this table; the slot is of its kind.
        unsafe {
            pg_sys::PreventCommandIfReadOnly(c"SELECT FOR UPDATE".as_ptr());
            let result = pg_sys::table_tuple_lock(
                self.relation,
                &raw mut tid,
                view.snapshot,
                slot,
                pg_sys::GetCurrentCommandId(true),
                lock.mode(),
                policy,
                lock.flags(),
                &raw mut failure,
            );
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            Taken::of(result)
        }
    }

    /// Returns whether the table has no page, and so no row that any transaction could see.
    pub(crate) fn has_no_page(&self) -> bool {
        self.pages() == 0
    }

    /// Returns the number of its pages.
    pub(crate) fn pages(&self) -> u32 {
        let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
        // SAFETY: an open relation with storage.
        unsafe { pg_sys::RelationGetNumberOfBlocksInFork(self.relation, fork) }
    }

    /// Deletes the rows that are left to a statement, and closes the table.
    pub(crate) fn close(self) {
        let left = self.to_delete.borrow();
        if !left.is_empty() {
            by_statement::delete(&self, &left);
        }
        // SAFETY: opened by `open`; the lock stays until the transaction ends.
        unsafe { pg_sys::table_close(self.relation, pg_sys::NoLock as i32) }
    }
}

/// Raises 55000: the table does not match this library.
fn refuse(name: &CStr, found: &str) -> ! {
    let name = name.to_string_lossy();
    Error::of_another_version(&format!("does not match trax.{name}: {found}")).raise()
}

/// A lock of a row.
#[derive(Clone, Copy)]
pub(crate) enum RowLock {
    /// For update.
    Update,
    /// For share: keeps the row from being changed.
    Share,
    /// For key share: keeps the row from being deleted.
    KeyShare,
}

impl RowLock {
    fn mode(self) -> pg_sys::LockTupleMode::Type {
        match self {
            Self::Update => pg_sys::LockTupleMode::LockTupleExclusive,
            Self::Share => pg_sys::LockTupleMode::LockTupleShare,
            Self::KeyShare => pg_sys::LockTupleMode::LockTupleKeyShare,
        }
    }

    fn flags(self) -> u8 {
        match self {
            Self::Update => 0,
            // Also locks newer versions of the row.
            Self::Share | Self::KeyShare => pg_sys::TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS as u8,
        }
    }
}

/// The result of locking, deleting or changing a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// The row is deleted.
    No,
    /// A transaction that has not ended holds it.
    Busy,
    /// Another transaction has changed it since the snapshot.
    Changed,
}

impl Taken {
    fn of(result: pg_sys::TM_Result::Type) -> Self {
        match result {
            pg_sys::TM_Result::TM_Ok => Self::Yes,
            pg_sys::TM_Result::TM_Updated => Self::Changed,
            pg_sys::TM_Result::TM_BeingModified | pg_sys::TM_Result::TM_WouldBlock => Self::Busy,
            _ => Self::No,
        }
    }
}

/// Returns the first transaction whose deletes a vacuum of `trax.<name>` could not remove now.
pub(crate) fn horizon(name: &'static CStr) -> pg_sys::TransactionId {
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: a relation of the extension, closed before it returns.
    unsafe {
        let relation = pg_sys::table_open(relation_oid(name), lock);
        let horizon = pg_sys::GetOldestNonRemovableTransactionId(relation);
        pg_sys::table_close(relation, lock);
        horizon
    }
}

/// Returns the next values of the sequence `trax.<name>`, ascending.
pub(crate) fn next_ids(name: &'static CStr, count: usize) -> Vec<i64> {
    let sequence = Some(pg_sys::Datum::from(relation_oid(name)));
    (0..count)
        .map(|_| {
            // SAFETY: the function takes the oid of a sequence and never returns null.
            let id = unsafe { direct_function_call::<i64>(pg_sys::nextval_oid, &[sequence]) };
            id.expect("a sequence gives a number")
        })
        .collect()
}
