//! The server's log of statements that run without a client: the lines of `log_statement`,
//! `log_duration` and `log_min_duration_statement`, as a session with a client writes them.

use pgrx::pg_sys;
use std::ffi::{CStr, c_char, c_int};

/// Bytes of a duration in milliseconds, as text.
const DURATION_BYTES: usize = 32;

unsafe extern "C-unwind" {
    fn errstart(level: c_int, domain: *const c_char) -> bool;
    fn errmsg(format: *const c_char, ...) -> c_int;
    fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
}

/// Writes the log line of `log_statement`, if that is set for one of the statements. Returns
/// whether it did.
pub(crate) fn statement(text: &CStr, statements: &[*mut pg_sys::RawStmt]) -> bool {
    // SAFETY: statements of a tree that is in use.
    let is_logged = unsafe {
        let level = pg_sys::log_statement as pg_sys::LogStmtLevel::Type;
        let is_asked_for =
            |&raw: &*mut pg_sys::RawStmt| pg_sys::GetCommandLogLevel(raw.cast()) <= level;
        level != pg_sys::LogStmtLevel::LOGSTMT_NONE && statements.iter().any(is_asked_for)
    };
    if is_logged {
        write(c"statement: %s", text, c"");
    }
    is_logged
}

/// Writes the line of `log_duration` or `log_min_duration_statement` for statements that began at
/// `statement_timestamp()` and are complete. The line omits a text that was logged before.
pub(crate) fn duration(text: &CStr, was_logged: bool) {
    let mut millis = [0; DURATION_BYTES];
    // SAFETY: the server writes a text with its zero byte into a buffer of the size that it needs.
    let (line, millis) = unsafe {
        let line = pg_sys::check_log_duration(millis.as_mut_ptr(), was_logged);
        (line, CStr::from_ptr(millis.as_ptr()))
    };
    match line {
        1 => write(c"duration: %s ms", millis, c""),
        2 => write(c"duration: %s ms  statement: %s", millis, text),
        _ => {}
    }
}

/// Writes a line with one or two texts, in the server's format, which it may translate. A cancel is
/// delayed until then, so that a committed statement does not count as failed.
fn write(format: &CStr, first: &CStr, second: &CStr) {
    // SAFETY: a report of this level returns while interrupts are held; each `%s` of the format has
    // its text, and texts without one are not read.
    unsafe {
        pg_sys::InterruptHoldoffCount += 1;
        if errstart(pg_sys::LOG as c_int, std::ptr::null()) {
            errmsg(format.as_ptr(), first.as_ptr(), second.as_ptr());
            pg_sys::errhidestmt(true);
            errfinish(c"trax".as_ptr(), 0, std::ptr::null());
        }
        pg_sys::InterruptHoldoffCount -= 1;
    }
}
