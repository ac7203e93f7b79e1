//! TOAST: values that are stored beside their row, and may be damaged there.

use crate::error::Result;
use crate::server::spi;
use pgrx::pg_sys;
use pgrx::varlena::varatt_is_1b_e;

/// Returns whether a value of a row is stored beside it.
pub(crate) fn is_beside(value: pg_sys::Datum) -> bool {
    let stored = value.cast_mut_ptr::<pg_sys::varlena>();
    // SAFETY: the callers pass values of types with a variable length.
    unsafe { varatt_is_1b_e(stored) }
}

/// Returns a value with all of it, still compressed if it was; costs nothing where it is stored in
/// its row. One that cannot be read is an error that leaves the transaction as it was.
pub(crate) fn fetched(value: pg_sys::Datum) -> Result<pg_sys::Datum> {
    if !is_beside(value) {
        return Ok(value);
    }
    spi::isolated(|| {
        let stored = value.cast_mut_ptr::<pg_sys::varlena>();
        // SAFETY: a value of a row that is locked or has been deleted by this transaction.
        Ok(pg_sys::Datum::from(unsafe {
            pg_sys::detoast_external_attr(stored)
        }))
    })
}
