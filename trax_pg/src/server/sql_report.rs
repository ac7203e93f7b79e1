//! The server's reports while a statement of another role runs: its notices, and the complete error
//! that ends it.

use crate::error::{Error, cut};
use crate::server::sql_result::quote;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgLogLevel, PgTryBuilder, pg_sys};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The SQLSTATE of a statement that was cancelled.
pub(crate) const QUERY_CANCELED: &str = "57014";

/// The most notices that are kept, and the most bytes of each.
const NOTICES: usize = 100;
const NOTICE_BYTES: usize = 1024;

/// An error, as the server reported it.
#[derive(Clone, Debug)]
pub(crate) struct ServerError {
    pub(crate) sqlstate: String,
    pub(crate) message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
    position: i32,
    /// Whether nothing of the statement was committed.
    pub(crate) in_transaction: bool,
}

impl ServerError {
    /// Returns the value of `trax.run.detail` for the error, as JSON.
    pub(crate) fn json(&self, notices: &[u8]) -> Vec<u8> {
        let mut json = Vec::new();
        let mut member = |name: &str, value: &str| {
            json.push(if json.is_empty() { b'{' } else { b',' });
            quote(&mut json, name.as_bytes());
            json.push(b':');
            quote(&mut json, value.as_bytes());
        };
        member("sqlstate", &self.sqlstate);
        member("message", &self.message);
        let others = [
            ("detail", &self.detail),
            ("hint", &self.hint),
            ("context", &self.context),
        ];
        for (name, value) in others {
            if let Some(value) = value {
                member(name, value);
            }
        }
        if self.position > 0 {
            json.extend_from_slice(format!(",\"position\":{}", self.position).as_bytes());
        }
        if !self.in_transaction {
            json.extend_from_slice(b",\"transaction\":false");
        }
        json.extend_from_slice(b",\"notices\":[");
        json.extend_from_slice(notices);
        json.extend_from_slice(b"]}");
        json
    }

    /// Returns an error of the extension as the server would have reported it.
    pub(crate) fn of(error: Error) -> Box<Self> {
        match guarded(|| error.raise()) {
            Ok(never) => never,
            Err(raised) => raised,
        }
    }
}

thread_local! {
    /// The last reported error; its context is complete, because this callback is the last in it.
    static LAST: RefCell<Option<ServerError>> = const { RefCell::new(None) };
    static KEPT: RefCell<(usize, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
    /// The lowest level that the log accepts, while notices are collected.
    static LOGGED: Cell<Option<i32>> = const { Cell::new(None) };
}
static mut NEXT_LOG_HOOK: pg_sys::emit_log_hook_type = None;

/// Runs `work`, and returns the error that ends it. The caller must then abort the transaction.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Box<ServerError>> {
    LAST.take();
    // SAFETY: the link is in this frame, and removed from the chain before the frame ends.
    unsafe {
        let mut link = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(note_error),
            arg: std::ptr::null_mut(),
        };
        pg_sys::error_context_stack = &raw mut link;
        let outcome = PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
            .catch_others(|caught| Err(Box::new(server_error(&caught))))
            .execute();
        pg_sys::error_context_stack = link.previous;
        outcome
    }
}

fn server_error(caught: &CaughtError) -> ServerError {
    let report = match caught {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report,
        CaughtError::RustPanic { ereport, .. } => ereport,
    };
    let last = LAST.take();
    // An error that was caught on the way did not end the work.
    last.filter(|last| last.message == cut(report.message().to_owned()))
        .unwrap_or_else(|| ServerError {
            sqlstate: sqlstate(report.sql_error_code() as i32),
            message: cut(report.message().to_owned()),
            detail: report.detail().map(|text| cut(text.to_owned())),
            hint: report.hint().map(|text| cut(text.to_owned())),
            context: None,
            position: 0,
            in_transaction: true,
        })
}

fn sqlstate(code: i32) -> String {
    (0..5)
        .map(|index| char::from(((code >> (6 * index)) & 0x3f) as u8 + b'0'))
        .collect()
}

unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: null or a C string.
    let text = unsafe { (!pointer.is_null()).then(|| CStr::from_ptr(pointer)) };
    text.map(|text| cut(text.to_string_lossy().into_owned()))
}

/// Keeps an error while it is being reported. Raises nothing itself.
unsafe extern "C-unwind" fn note_error(_argument: *mut c_void) {
    // SAFETY: inside an error report; the copy is made in another context than the report's.
    unsafe {
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
        let report = pg_sys::CopyErrorData();
        if (*report).elevel >= PgLogLevel::ERROR as i32 {
            LAST.set(Some(ServerError {
                sqlstate: sqlstate((*report).sqlerrcode),
                message: text((*report).message).unwrap_or_default(),
                detail: text((*report).detail),
                hint: text((*report).hint),
                context: text((*report).context),
                position: (*report).cursorpos,
                in_transaction: true,
            }));
        }
        pg_sys::FreeErrorData(report);
        pg_sys::CurrentMemoryContext = before;
    }
}

/// The error that kept the session from starting, as its SQLSTATE and message.
static START_ERROR: OnceLock<(String, String)> = OnceLock::new();
static HAS_STARTED: AtomicBool = AtomicBool::new(false);

/// Notes that the session has started: later errors are errors of statements.
pub(crate) fn started() {
    HAS_STARTED.store(true, Ordering::Relaxed);
}

/// Returns the SQLSTATE and the message of the error that kept the session from starting.
pub(crate) fn start_error() -> Option<&'static (String, String)> {
    START_ERROR.get()
}

/// Begins to collect the notices that a client would be sent, and the error that ends the session
/// before it has started; call it when an executor starts.
pub(crate) fn install() {
    // SAFETY: a process with one thread; the hook lives as long as the library.
    unsafe {
        NEXT_LOG_HOOK = pg_sys::emit_log_hook;
        pg_sys::emit_log_hook = Some(note_notice);
    }
}

/// Runs `work` and returns its notices, as the inside of a JSON array. `work` does not unwind.
pub(crate) fn with_notices<T>(work: impl FnOnce() -> T) -> (T, Vec<u8>) {
    KEPT.take();
    // SAFETY: a plain number of this process. Changed so that the server reports notices at all;
    // the hook keeps those from the log that it does not accept.
    let result = unsafe {
        let logged = pg_sys::log_min_messages;
        LOGGED.set(Some(logged));
        pg_sys::log_min_messages = if logged == PgLogLevel::LOG as i32 {
            PgLogLevel::INFO as i32
        } else {
            logged.min(PgLogLevel::INFO as i32)
        };
        let result = work();
        if LOGGED.take().is_some() {
            pg_sys::log_min_messages = logged;
        }
        result
    };
    (result, KEPT.take().1)
}

/// Returns the notices so far, as the inside of a JSON array.
pub(crate) fn notices() -> Vec<u8> {
    KEPT.with_borrow(|(_, json)| json.clone())
}

// Without pgrx's guard: it runs inside an error report, and raises nothing itself.
unsafe extern "C-unwind" fn note_notice(report: *mut pg_sys::ErrorData) {
    // SAFETY: the server passes a report that lives over the call; `install` has set the next hook.
    unsafe {
        let level = (*report).elevel;
        if level >= PgLogLevel::ERROR as i32 && !HAS_STARTED.load(Ordering::Relaxed) {
            let message = text((*report).message).unwrap_or_default();
            START_ERROR.get_or_init(|| (sqlstate((*report).sqlerrcode), message));
        }
        let of_client = [PgLogLevel::INFO, PgLogLevel::NOTICE, PgLogLevel::WARNING];
        if let Some(logged) = LOGGED.get()
            && of_client.iter().any(|&one| one as i32 == level)
        {
            if level == PgLogLevel::INFO as i32 || level >= pg_sys::client_min_messages {
                keep(&*report);
            }
            if logged == PgLogLevel::LOG as i32 || level < logged {
                (*report).output_to_server = false;
            }
        }
        if let Some(next) = NEXT_LOG_HOOK {
            next(report);
        }
    }
}

unsafe fn keep(report: &pg_sys::ErrorData) {
    KEPT.with_borrow_mut(|(count, json)| {
        if *count >= NOTICES {
            return;
        }
        *count += 1;
        if !json.is_empty() {
            json.push(b',');
        }
        // SAFETY: null or a C string of the report.
        let text = unsafe { text(report.message) }.unwrap_or_default();
        let end = (0..=text.len().min(NOTICE_BYTES))
            .rev()
            .find(|&end| text.is_char_boundary(end));
        quote(json, &text.as_bytes()[..end.unwrap_or(0)]);
    });
}
