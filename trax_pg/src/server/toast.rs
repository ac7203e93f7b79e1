//! TOAST: values that are stored out of line, and may be damaged there.

use crate::error::Result;
use crate::server::spi;
use pgrx::pg_sys;
use pgrx::varlena::varatt_is_1b_e;

/// Returns whether a value of a row is stored out of line.
pub(crate) fn is_beside(value: pg_sys::Datum) -> bool {
    let stored = value.cast_mut_ptr::<pg_sys::varlena>();
    // SAFETY: the callers pass values of types with a variable length.
    unsafe { varatt_is_1b_e(stored) }
}

/// Returns the fetched form of a value that is stored out of line. If it cannot be read, the error
/// leaves the transaction unchanged.
pub(crate) fn fetched(value: pg_sys::Datum) -> Result<pg_sys::Datum> {
    spi::isolated(|| Ok(fetch(value)))
}

/// Returns values with all out-of-line parts fetched, or the error of the first that cannot be
/// read. Costs nothing if no value is out of line.
pub(crate) fn all_fetched(values: &[pg_sys::Datum]) -> Result<Vec<pg_sys::Datum>> {
    if !values.iter().copied().any(is_beside) {
        return Ok(values.to_vec());
    }
    spi::isolated(|| Ok(values.iter().copied().map(fetch).collect()))
}

/// Returns the whole value, still compressed if it was.
fn fetch(value: pg_sys::Datum) -> pg_sys::Datum {
    let stored = value.cast_mut_ptr::<pg_sys::varlena>();
    // SAFETY: a value of a row that this transaction sees, or has deleted.
    pg_sys::Datum::from(unsafe { pg_sys::detoast_external_attr(stored) })
}
