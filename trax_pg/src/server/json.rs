//! JSON values of jsonb arguments and columns that Rust looks into. Inputs and outputs of jobs only
//! travel through.

use crate::error::{Error, Result};
use pgrx::pg_sys;
use serde_json::Value;
use std::ffi::CStr;

/// Returns a jsonb value, or 22023: nesting deeper than 127 levels is more than a document of ours
/// can need.
pub(crate) fn value(datum: pg_sys::Datum, what: &str) -> Result<Value> {
    // SAFETY: the callers pass jsonb values; the result is a C string of this memory context.
    let text = unsafe {
        let text = pgrx::fcinfo::direct_function_call_as_datum(pg_sys::jsonb_out, &[Some(datum)])
            .expect("jsonb has a text");
        CStr::from_ptr(text.cast_mut_ptr()).to_string_lossy()
    };
    serde_json::from_str(&text).map_err(|error| {
        Error::invalid(format!("{what} cannot be read"))
            .detail(format!("It is not valid JSON: {error}."))
            .hint("Reduce the depth of nesting.")
    })
}
