//! The session in which another role's statements run without a client: its transactions, and its
//! reset to the initial state.

use super::port;
use super::random::random;
use pgrx::{pg_guard, pg_sys};
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The number of `statement_timeout` among the server's timeouts.
const STATEMENT_TIMEOUT: u32 = 3;
/// `XACT_FLAGS_NEEDIMMEDIATECOMMIT`: the statement cannot be rolled back once it has run.
const NEEDS_IMMEDIATE_COMMIT: i32 = 1 << 2;
/// The most serializable transactions that one process runs.
const HIDDEN_AT_MOST: usize = 200;

unsafe extern "C-unwind" {
    fn enable_timeout_after(id: u32, delay_ms: i32);
    fn disable_timeout(id: u32, keep_indicator: bool);
    fn disable_all_timeouts(keep_indicators: bool);
    fn Async_UnlistenAll();
    fn ResetSequenceCaches();
    fn PreCommit_Portals(is_prepare: bool) -> bool;
    fn ShareSerializableXact() -> *mut c_void;
    fn AttachSerializableXact(handle: *mut c_void);
}

fn guard<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a function of the server that keeps no Rust value.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(work) }
}

/// Does what a session with a client does at its start, in its first transaction.
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

/// Shows a statement as the session's current one.
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

/// Runs a statement of a block.
pub(crate) fn one_statement<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the calls that a session makes around a statement of its client.
    unsafe {
        pg_sys::StartTransactionCommand();
        let result = timed(work);
        pg_sys::CommitTransactionCommand();
        result
    }
}

/// Runs a statement under `statement_timeout`.
fn timed<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a plain number of this process.
    let timeout = unsafe { pg_sys::StatementTimeout };
    if timeout > 0 {
        // SAFETY: as a session does; an error disables all timeouts.
        guard(|| unsafe { enable_timeout_after(STATEMENT_TIMEOUT, timeout) });
    }
    let result = work();
    if timeout > 0 {
        // SAFETY: as above.
        guard(|| unsafe { disable_timeout(STATEMENT_TIMEOUT, false) });
    }
    result
}

/// Does in the block what its commit would do for the statements, then runs `work`, and commits if
/// that returns true; otherwise the caller must abort the block.
pub(crate) fn end_block(work: impl FnOnce() -> bool) -> bool {
    one_statement(settle);
    // SAFETY: inside a block.
    unsafe {
        pg_sys::StartTransactionCommand();
        if !as_ours(work) {
            return false;
        }
        pg_sys::EndTransactionBlock(false);
        pg_sys::CommitTransactionCommand();
        true
    }
}

/// The result of a statement outside a block.
pub(crate) enum Alone<T> {
    /// The statement and `ours` have committed together.
    Committed,
    /// `ours` returned false: the caller must abort the open transaction.
    Refused,
    /// The statement had to commit by itself: `ours` has not run.
    WithoutOurs(T),
}

/// Runs a statement outside a block, where it may end its transaction, and `ours` in the last of
/// its transactions.
pub(crate) fn alone<T>(work: impl FnOnce() -> T, ours: impl FnOnce(&T) -> bool) -> Alone<T> {
    // SAFETY: outside a transaction.
    unsafe {
        pg_sys::StartTransactionCommand();
        TRANSACTION.set(transaction());
        let did = timed(work);
        // For example CREATE DATABASE: after a rollback its files would exist, or be gone,
        // nevertheless.
        if pg_sys::MyXactFlags & NEEDS_IMMEDIATE_COMMIT != 0 {
            pg_sys::CommitTransactionCommand();
            return Alone::WithoutOurs(did);
        }
        timed(settle);
        if !as_ours(|| ours(&did)) {
            return Alone::Refused;
        }
        pg_sys::CommitTransactionCommand();
        Alone::Committed
    }
}

thread_local! {
    /// The transaction that the statement of `alone` began in.
    static TRANSACTION: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether the statement of `alone` has committed a part of itself: the current transaction
/// is not the one in which it began.
pub(crate) fn has_committed() -> bool {
    TRANSACTION.get() != transaction()
}

/// Returns the number of the current transaction of this process, whether it has written or not.
fn transaction() -> u32 {
    // SAFETY: this process, which is in shared memory until it ends.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return (*pg_sys::MyProc).lxid;
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        return (*pg_sys::MyProc).vxid.lxid;
    }
}

/// Does what the commit would do for the statements, while a cancel still reaches it: deferred
/// triggers, and the rows of cursors that outlive the transaction.
fn settle() {
    // SAFETY: the server does the same in the same order when it commits; inside a transaction.
    unsafe {
        let mut all_now = pg_sys::ConstraintsSetStmt {
            type_: pg_sys::NodeTag::T_ConstraintsSetStmt,
            constraints: std::ptr::null_mut(),
            deferred: false,
        };
        loop {
            pg_sys::AfterTriggerSetState(&raw mut all_now);
            if !guard(|| PreCommit_Portals(false)) {
                return;
            }
        }
    }
}

/// Runs `work` in READ COMMITTED and read-write mode, even if the statements chose a read-only
/// transaction: in their snapshot it would conflict with all later changes.
///
/// Its reads and writes are hidden from SERIALIZABLE: there, two unrelated statements would
/// conflict in the pages of a lease and an index.
fn as_ours(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the level and the handle are restored, also by `abort` or the end of the process.
    unsafe {
        let level = pg_sys::XactIsoLevel;
        pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED as i32;
        pg_sys::XactReadOnly = false;
        pg_sys::CurrentMemoryContext = pg_sys::TopTransactionContext;
        hide_serializable();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let done = work();
        if done {
            pg_sys::PopActiveSnapshot();
        }
        show_serializable();
        pg_sys::XactIsoLevel = level;
        done
    }
}

/// The hidden serializable transaction, or null.
static HIDDEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// How often one was hidden: each leaves a small table of the server behind in this process.
static TIMES_HIDDEN: AtomicUsize = AtomicUsize::new(0);

fn hide_serializable() {
    // A server that was built with assertions expects that there was none before. There, the
    // statement is tried again when it conflicts with the extension's rows.
    // SAFETY: the name of a setting that every server has; the result is a C string.
    let assertions = unsafe { pg_sys::GetConfigOption(c"debug_assertions".as_ptr(), true, false) };
    // SAFETY: as above.
    if !assertions.is_null() && unsafe { CStr::from_ptr(assertions) } == c"on" {
        return;
    }
    // SAFETY: as a parallel worker gets and leaves the transaction of its leader: a pointer that
    // this process has, and null. The end of the process restores it before the server frees it.
    unsafe {
        let serializable = guard(|| ShareSerializableXact());
        if serializable.is_null() {
            return;
        }
        if TIMES_HIDDEN.fetch_add(1, Ordering::Relaxed) == 0 {
            pg_sys::before_shmem_exit(Some(show_at_exit), pg_sys::Datum::from(0));
        }
        HIDDEN.store(serializable, Ordering::Relaxed);
        guard(|| AttachSerializableXact(std::ptr::null_mut()));
    }
}

fn show_serializable() {
    let hidden = HIDDEN.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if !hidden.is_null() {
        // SAFETY: the handle that this process had, and has not freed since.
        guard(|| unsafe { AttachSerializableXact(hidden) });
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn show_at_exit(_code: i32, _argument: pg_sys::Datum) {
    show_serializable();
}

/// Returns whether this process has run so many serializable transactions that another one should
/// take over.
pub(crate) fn is_worn() -> bool {
    TIMES_HIDDEN.load(Ordering::Relaxed) >= HIDDEN_AT_MOST
}

/// Rolls back any open transaction, also after an error.
pub(crate) fn abort() {
    // SAFETY: the calls that a session makes after an error of a statement.
    unsafe {
        guard(|| disable_all_timeouts(false));
        show_serializable();
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

/// Resets the session to its initial state, as DISCARD ALL does, except for cached plans, which are
/// the extension's. Random numbers are seeded again too: a statement's seed predicts none of the
/// next.
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

/// Libraries that keep no state of a statement: the language of most functions, and the expression
/// compiler.
const STATELESS: [&str; 2] = ["plpgsql", "llvmjit"];

/// Returns how many loaded libraries may keep state that `reset` does not know of: connections of
/// dblink, globals of an interpreter.
pub(crate) fn libraries() -> usize {
    // SAFETY: the names, each with a zero byte behind it and one after the last, are written into a
    // buffer of the size that the server asks for.
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

/// Returns whether the session belongs to that role, without state that `reset` leaves.
pub(crate) fn is_of(role: pg_sys::Oid) -> bool {
    // SAFETY: plain values of this process.
    unsafe {
        pg_sys::GetUserId() == role
            && pg_sys::GetSessionUserId() == role
            && pg_sys::replorigin_session_origin == pg_sys::InvalidRepOriginId as u16
            && pg_sys::MyReplicationSlot.is_null()
    }
}
