//! A procedure that waits: steps in transactions of their own, with the rights of its owner, and nothing held between
//! them.

use crate::error::Result;
use crate::spi::{self, Spi};
use pgrx::pg_sys;

/// One CALL that may end its transaction.
pub(super) struct Procedure {
    owner: pg_sys::Oid,
    /// It was called by a procedural language, which keeps a connection to SPI that must not be left without a
    /// transaction.
    nested: bool,
}

impl Procedure {
    pub(super) fn new(owner: pg_sys::Oid) -> Self {
        // SAFETY: reads the state of SPI.
        let nested = unsafe { pg_sys::SPI_inside_nonatomic_context() };
        Self { owner, nested }
    }

    /// Does one step, the first of its transaction, with a snapshot of its own, as a function with `security definer` and a fixed `search_path` would.
    pub(super) fn step<T>(&self, work: impl FnOnce(&Spi) -> Result<T>) -> Result<T> {
        let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
        // SAFETY: in a transaction; an error leaves user, settings and snapshot to its abort, as the server's own
        // functions do.
        unsafe {
            // Whatever the session prefers: a race over a place is no error of serialization.
            pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED as i32;
            pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
            let level = pg_sys::NewGUCNestLevel();
            let owned = context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
            pg_sys::SetUserIdAndSecContext(self.owner, owned);
            pg_sys::set_config_option(
                c"search_path".as_ptr(),
                c"pg_catalog, pg_temp".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            let result = spi::connected(work);
            pg_sys::PopActiveSnapshot();
            pg_sys::AtEOXact_GUC(true, level);
            pg_sys::SetUserIdAndSecContext(user, context);
            result
        }
    }

    /// Commits what the steps have done, and begins another transaction.
    pub(super) fn commit(&self) {
        spi::commit();
    }

    /// Waits after a commit: outside any transaction, or, called by a procedural language, in one that has done nothing.
    pub(super) fn rest(&self, wait: impl FnOnce()) {
        if self.nested {
            // SAFETY: the transaction has no other snapshot.
            unsafe { pg_sys::InvalidateCatalogSnapshot() };
            return wait();
        }
        // SAFETY: as VACUUM does between its transactions; the memory of the CALL outlives them.
        unsafe {
            let memory = pg_sys::CurrentMemoryContext;
            pg_sys::CommitTransactionCommand();
            pg_sys::CurrentMemoryContext = memory;
            wait();
            pg_sys::StartTransactionCommand();
            pg_sys::CurrentMemoryContext = memory;
        }
    }
}
