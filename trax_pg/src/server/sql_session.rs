//! The session in which statements of somebody's run without a client: its transactions, and how it
//! becomes as it was when it began.

use super::port;
use super::random::random;
use pgrx::pg_sys;
use std::ffi::CStr;

/// The number of `statement_timeout` among the server's timeouts.
const STATEMENT_TIMEOUT: u32 = 3;

unsafe extern "C-unwind" {
    fn enable_timeout_after(id: u32, delay_ms: i32);
    fn disable_timeout(id: u32, keep_indicator: bool);
    fn disable_all_timeouts(keep_indicators: bool);
    fn Async_UnlistenAll();
    fn ResetSequenceCaches();
}

fn guard<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a function of the server that keeps no Rust value.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(work) }
}

/// Does what a session with a client does at its begin, in its first transaction.
pub(crate) fn begin() {
    port::begin();
    // SAFETY: the settings of the role are in force; the name is a constant.
    unsafe {
        pg_sys::process_session_preload_libraries();
        if super::backend::application_name().is_empty() {
            pg_sys::SetConfigOption(
                c"application_name".as_ptr(),
                c"trax executor".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_CLIENT,
            );
        }
    }
}

/// Shows a statement as the one that the session runs.
pub(crate) fn show(text: &CStr) {
    // SAFETY: the text lives until `hide`.
    unsafe {
        (&raw mut pg_sys::QueryCancelPending).write_volatile(0);
        pg_sys::debug_query_string = text.as_ptr();
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, text.as_ptr());
    }
}

pub(crate) fn hide() {
    // SAFETY: no statement runs any more.
    unsafe {
        pg_sys::debug_query_string = std::ptr::null();
        pg_sys::pgstat_report_stat(true);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}

/// Begins a run of all statements of a text: they have one `statement_timestamp()`.
pub(crate) fn begin_run() {
    // SAFETY: outside a transaction.
    unsafe { pg_sys::SetCurrentStatementStartTimestamp() };
}

/// Begins a transaction block.
pub(crate) fn begin_block() {
    // SAFETY: outside a transaction; the calls are those of BEGIN.
    unsafe {
        pg_sys::StartTransactionCommand();
        pg_sys::BeginTransactionBlock();
        pg_sys::CommitTransactionCommand();
    }
}

/// Runs a statement: by itself outside a block, as the next one inside.
pub(crate) fn one_statement<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: what a session does around a statement of its client.
    unsafe {
        pg_sys::StartTransactionCommand();
        let timeout = pg_sys::StatementTimeout;
        if timeout > 0 {
            guard(|| enable_timeout_after(STATEMENT_TIMEOUT, timeout));
        }
        let result = work();
        if timeout > 0 {
            guard(|| disable_timeout(STATEMENT_TIMEOUT, false));
        }
        pg_sys::CommitTransactionCommand();
        result
    }
}

/// Does our part in the block, and commits it if that says so; otherwise it is to be aborted.
pub(crate) fn end_block(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: inside a block. What is ours is written although the statements chose to write
    // nothing.
    unsafe {
        pg_sys::StartTransactionCommand();
        pg_sys::XactReadOnly = false;
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        if !work() {
            return false;
        }
        pg_sys::PopActiveSnapshot();
        pg_sys::EndTransactionBlock(false);
        pg_sys::CommitTransactionCommand();
        true
    }
}

/// Undoes whatever is open, after an error too.
pub(crate) fn abort() {
    // SAFETY: what a session does after an error of a statement.
    unsafe {
        guard(|| disable_all_timeouts(false));
        (&raw mut pg_sys::QueryCancelPending).write_volatile(0);
        pg_sys::AbortOutOfAnyTransaction();
        pg_sys::PortalErrorCleanup();
        pg_sys::jit_reset_after_error();
        pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
    }
}

/// Runs `work` without answering a cancel.
pub(crate) fn without_cancel(work: impl FnOnce()) {
    // SAFETY: a counter of this process, which an error sets back to zero.
    unsafe {
        pg_sys::QueryCancelHoldoffCount += 1;
        work();
        pg_sys::QueryCancelHoldoffCount -= 1;
        (&raw mut pg_sys::QueryCancelPending).write_volatile(0);
    }
}

/// Makes the session as it was when it began, as DISCARD ALL does but for its plans: those are
/// ours. Random numbers begin anew too: a seed that a statement chose foretells none of the next.
pub(crate) fn reset() {
    // SAFETY: outside a transaction, with no portal in use.
    unsafe {
        pg_sys::StartTransactionCommand();
        pg_sys::PortalHashTableDeleteAll();
        pg_sys::SetPGVariable(
            c"session_authorization".as_ptr(),
            std::ptr::null_mut(),
            false,
        );
        pg_sys::ResetAllOptions();
        pg_sys::DropAllPreparedStatements();
        guard(|| Async_UnlistenAll());
        pg_sys::LockReleaseAll(pg_sys::USER_LOCKMETHOD as _, true);
        pg_sys::ResetTempTableNamespace();
        guard(|| ResetSequenceCaches());
        let seed = Some(pg_sys::Datum::from((2.0 * random() - 1.0).to_bits()));
        pgrx::direct_function_call_as_datum(pg_sys::setseed, &[seed]);
        pg_sys::CommitTransactionCommand();
    }
}

/// Libraries that keep nothing of a statement: the language that most functions are in, and the
/// compiler of expressions.
const STATELESS: [&str; 2] = ["plpgsql", "llvmjit"];

/// Returns how many libraries the process has loaded that may keep something which `reset` does not
/// know of: connections of dblink, globals of an interpreter.
pub(crate) fn libraries() -> usize {
    // SAFETY: the names, each with a zero byte behind it and one after the last, are written into
    // room of the size that the server says.
    let names = unsafe {
        let mut names = vec![0_u8; pg_sys::EstimateLibraryStateSpace()];
        pg_sys::SerializeLibraryState(names.len(), names.as_mut_ptr().cast());
        names
    };
    let names = names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty());
    let stems = names.map(|name| {
        let file = String::from_utf8_lossy(name);
        let file = file.rsplit('/').next().unwrap_or_default();
        file.split('.').next().unwrap_or_default().to_owned()
    });
    stems
        .filter(|stem| !STATELESS.contains(&stem.as_str()))
        .count()
}

/// Returns whether the session is that role's, with nothing in it that `reset` leaves.
pub(crate) fn is_of(role: pg_sys::Oid) -> bool {
    // SAFETY: plain values of this process.
    unsafe {
        pg_sys::GetUserId() == role
            && pg_sys::GetSessionUserId() == role
            && pg_sys::replorigin_session_origin == pg_sys::InvalidRepOriginId as u16
            && pg_sys::MyReplicationSlot.is_null()
    }
}
