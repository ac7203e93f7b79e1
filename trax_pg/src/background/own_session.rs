//! The session of a scheduler or a vacuum, independent of settings for clients.

use pgrx::pg_sys;
use std::ffi::CStr;

/// Isolates the session: settings of a database, a role or the configuration file for clients
/// affect neither the cycle, nor how its statements are parsed, nor its rights.
pub(super) fn isolate_session() {
    const FIXED: &[(&CStr, &CStr)] = &[
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"application_name", c"trax scheduler"),
        (c"statement_timeout", c"0"),
        (c"lock_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        (c"transaction_timeout", c"0"),
        // For the vacuum, which isolates its session in the same way.
        (c"vacuum_cost_delay", c"0"),
        // The next cycle repeats a cycle that a crash lost; all that follows from it is later in
        // the WAL.
        (c"synchronous_commit", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_deferrable", c"off"),
        (c"row_security", c"on"),
        (c"session_replication_role", c"origin"),
        (c"jit", c"off"),
        (c"default_tablespace", c""),
        (c"default_table_access_method", c"heap"),
        // How statements are parsed, and values written and read back.
        (c"standard_conforming_strings", c"on"),
        (c"backslash_quote", c"safe_encoding"),
        (c"transform_null_equals", c"off"),
        (c"array_nulls", c"on"),
        (c"xmloption", c"content"),
        (c"quote_all_identifiers", c"off"),
        // The only zone that the server has while its zone data is missing.
        (c"TimeZone", c"GMT"),
        (c"DateStyle", c"ISO, MDY"),
        (c"IntervalStyle", c"postgres"),
        (c"bytea_output", c"hex"),
        (c"extra_float_digits", c"1"),
    ];
    // SAFETY: this process was authenticated as the bootstrap superuser; the session returns to
    // that role without reading the catalogs, which is impossible outside a transaction.
    unsafe { pg_sys::SetSessionAuthorization(pg_sys::GetAuthenticatedUserId(), true) };
    for (name, value) in [(c"role", c"none")].iter().chain(FIXED) {
        // SAFETY: constant strings; this process belongs to a superuser and may change these
        // settings.
        unsafe {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
    }
}
