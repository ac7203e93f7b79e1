//! Procedures that wait: they run steps in separate transactions, with the rights of the
//! procedure's owner, and hold no lock of a transaction between the steps.

use crate::error::{Error, Result};
use crate::server::call::Call;
use crate::server::rights::with_rights_of;
use crate::server::spi;
use crate::server::spi::Spi;
use pgrx::pg_catalog::pg_proc::PgProc;
use pgrx::{PgSqlErrorCode, pg_sys};

/// A CALL that may end its transaction.
pub(crate) struct Procedure {
    function: pg_sys::Oid,
    extension: pg_sys::Oid,
    /// The caller is a procedural language, whose connection to SPI must not be left without a
    /// transaction.
    nested: bool,
}

impl Procedure {
    pub(crate) fn new(call: &Call) -> Self {
        // SAFETY: reads the state of SPI.
        let nested = unsafe { pg_sys::SPI_inside_nonatomic_context() };
        let function = call.function();
        // SAFETY: reads the catalog, inside a transaction.
        let extension =
            unsafe { pg_sys::getExtensionOfObject(pg_sys::ProcedureRelationId, function) };
        Self {
            function,
            extension,
            nested,
        }
    }

    pub(crate) fn is_nested(&self) -> bool {
        self.nested
    }

    /// Runs a step with its own snapshot, before any other statement of its transaction, as a
    /// function with `security definer` and a fixed `search_path` would run it.
    ///
    /// # Errors
    /// 42883 if the procedure was dropped while it waited.
    pub(crate) fn step<T>(&self, work: impl FnOnce(&Spi) -> Result<T>) -> Result<T> {
        // The session's isolation level is ignored, so that a race for a slot does not become a
        // serialization error.
        // SAFETY: no statement of the transaction has run yet.
        unsafe { pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED as i32 };
        self.keep_extension();
        let procedure = PgProc::new(self.function).ok_or_else(dropped)?;
        with_rights_of(procedure.proowner(), || {
            // SAFETY: in a transaction; an error leaves the snapshot to its abort, as the server's
            // own functions do.
            unsafe {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
                let result = spi::connected(work);
                pg_sys::PopActiveSnapshot();
                result
            }
        })
    }

    /// Makes `drop extension` wait until the transaction ends, because that locks the extension
    /// before the objects in it. If the drop came first, the step finds its procedure gone, and
    /// never a part of the extension.
    fn keep_extension(&self) {
        let mode = pg_sys::AccessShareLock as i32;
        // SAFETY: inside a transaction.
        unsafe {
            pg_sys::LockDatabaseObject(pg_sys::ExtensionRelationId, self.extension, 0, mode);
        }
    }

    /// Commits the changes of the steps, and begins another transaction.
    pub(crate) fn commit(&self) {
        spi::commit();
    }

    /// Waits after a commit: outside a transaction, or, if a procedural language made the call, in
    /// one that has done nothing.
    pub(crate) fn rest(&self, wait: impl FnOnce()) {
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

fn dropped() -> Error {
    let code = PgSqlErrorCode::ERRCODE_UNDEFINED_FUNCTION;
    Error::new(code, "trax was dropped while this procedure waited")
        .hint("Type: create extension trax; and call it again.")
}
