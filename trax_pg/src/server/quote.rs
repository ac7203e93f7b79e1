//! Quotes texts and names for SQL that a user types.

use pgrx::pg_sys;
use std::ffi::{CStr, CString, c_char};

/// Returns a text as an SQL literal, for a line to type.
pub(crate) fn literal(text: &str) -> String {
    // SAFETY: takes a C string and returns a new one.
    quoted(text, |text| unsafe { pg_sys::quote_literal_cstr(text) })
}

/// Returns a name as an SQL identifier, for a line to type.
pub(crate) fn identifier(name: &str) -> String {
    // SAFETY: takes a C string and returns it, or a new one.
    quoted(name, |name| unsafe { pg_sys::quote_identifier(name) })
}

fn quoted(text: &str, quote: impl FnOnce(*const c_char) -> *const c_char) -> String {
    let text = CString::new(text).expect("a text of the server has no zero byte");
    // SAFETY: the result lives as long as `text` and the memory context.
    unsafe { CStr::from_ptr(quote(text.as_ptr())) }
        .to_string_lossy()
        .into_owned()
}
