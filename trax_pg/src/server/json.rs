//! JSON values of jsonb arguments and columns that Rust reads. Inputs and outputs of jobs are only
//! passed on.

use crate::error::{Error, Result};
use pgrx::pg_sys;
use serde_json::Value;
use std::ffi::CStr;

/// The most bytes that a parsed document takes for each byte of its text: 32 for each element, of
/// at least three bytes, in a vector that doubles, and the digits of a number.
const BYTES_FOR_BYTE: usize = 48;

/// Returns a jsonb value, or 22023: no document here needs nesting deeper than 127 levels.
pub(crate) fn value(datum: pg_sys::Datum, what: &str) -> Result<Value> {
    // SAFETY: the callers pass jsonb values; the result is a C string of this memory context.
    let text = unsafe {
        let text = pgrx::fcinfo::direct_function_call_as_datum(pg_sys::jsonb_out, &[Some(datum)])
            .expect("jsonb has a text");
        CStr::from_ptr(text.cast_mut_ptr()).to_string_lossy()
    };
    require_memory(text.len().saturating_mul(BYTES_FOR_BYTE));
    serde_json::from_str(&text).map_err(|error| {
        Error::invalid(format!("{what} cannot be read"))
            .detail(format!("It is not valid JSON: {error}."))
            .hint("Reduce the depth of nesting.")
    })
}

/// Raises 53200 if the process cannot allocate this many bytes: the parser would abort it.
fn require_memory(bytes: usize) {
    // The optimizer may remove an unused allocation.
    let mut probe = std::hint::black_box(Vec::<u8>::new());
    if std::hint::black_box(&mut probe)
        .try_reserve_exact(bytes)
        .is_err()
    {
        // Raised, not returned: a caller could take it for an error of the value.
        Error::no_memory().raise();
    }
}
