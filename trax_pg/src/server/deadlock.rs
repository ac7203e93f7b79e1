//! Deadlocks: the server's log names the statements involved.
//!
//! The server reports them in a part of its message that is for the log only. An error that passes
//! through Rust loses this part; this hook adds it again, just before the report of a deadlock
//! without it is written. At that time the victim still holds its locks, and the other sessions
//! still wait.

use pgrx::{PgSqlErrorCode, pg_sys};
use std::ffi::{CStr, c_char};

static mut NEXT: pg_sys::emit_log_hook_type = None;

/// Installs the hook; for `_PG_init`.
pub(crate) fn install() {
    // SAFETY: a process with one thread, which loads the library once.
    unsafe {
        NEXT = pg_sys::emit_log_hook;
        pg_sys::emit_log_hook = Some(add_statements);
    }
}

// Without pgrx's guard: it runs inside an error report, and raises nothing itself.
unsafe extern "C-unwind" fn add_statements(report: *mut pg_sys::ErrorData) {
    // SAFETY: the server passes a report that lives over the call; `install` has set the next hook.
    unsafe {
        let code = PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED as i32;
        let is_deadlock = (*report).sqlerrcode == code && (*report).output_to_server;
        if is_deadlock && (*report).detail_log.is_null() && !(*report).detail.is_null() {
            (*report).detail_log = with_statements(CStr::from_ptr((*report).detail));
        }
        if let Some(next) = NEXT {
            next(report);
        }
    }
}

/// Returns the detail, each of whose lines begins with a process, with the statement of each; null
/// when there is no memory.
unsafe fn with_statements(detail: &CStr) -> *mut c_char {
    let mut text = detail.to_bytes().to_vec();
    for line in detail.to_bytes().split(|&byte| byte == b'\n') {
        let digits: Vec<u8> = line
            .iter()
            .copied()
            .skip_while(|byte| !byte.is_ascii_digit())
            .take_while(u8::is_ascii_digit)
            .collect();
        let pid = String::from_utf8_lossy(&digits).parse::<i32>();
        let Ok(pid) = pid else {
            continue;
        };
        text.extend_from_slice(format!("\nProcess {pid}: ").as_bytes());
        // SAFETY: returns a text that ends with a zero, also for a process that is gone.
        let statement = unsafe { CStr::from_ptr(activity(pid)) };
        text.extend_from_slice(statement.to_bytes());
    }
    // SAFETY: a copy of the text, with a zero at its end, in the memory of the report.
    unsafe {
        let flags = (pg_sys::MCXT_ALLOC_NO_OOM | pg_sys::MCXT_ALLOC_ZERO) as i32;
        let copy =
            pg_sys::MemoryContextAllocExtended(pg_sys::CurrentMemoryContext, text.len() + 1, flags);
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr(), copy.cast(), text.len());
        }
        copy.cast()
    }
}

unsafe fn activity(pid: i32) -> *const c_char {
    // SAFETY: looks the process up among the backends; for the log, so without a check of its role.
    unsafe { pg_sys::pgstat_get_backend_current_activity(pid, false) }
}
