//! The end of a transaction, and the callbacks that run then.
//!
//! Callbacks for enqueueing and claiming run at every transaction end of a session that called
//! [`listen`]: registered once per session, in the order that `end_of_transaction` lists. Rare
//! statements register a callback for their own transaction only ([`at_end`], [`after_commit`],
//! [`unless_committed`]): pgrx keeps those in lists that it allocates for each transaction. Holds:
//! after a commit nothing may fail.

use pgrx::{
    PgSubXactCallbackEvent, PgXactCallbackEvent, pg_guard, pg_sys, register_subxact_callback,
    register_xact_callback,
};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a transaction, or a part of it, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The transaction is about to commit.
    Committing,
    Committed,
    Undone,
    /// The transaction is prepared: another session will end it.
    Prepared,
    /// This subtransaction is rolled back, with those inside it, whose numbers are greater.
    PartUndone(pg_sys::SubTransactionId),
}

static LISTENER: OnceLock<fn(End)> = OnceLock::new();
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Sets the callback of each end; once, when the library is loaded.
pub(crate) fn listener(listener: fn(End)) {
    LISTENER.get_or_init(|| listener);
}

/// Calls the listener at the end of each transaction of this session, from this one on.
pub(crate) fn listen() {
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the callbacks live as long as the library, which is never unloaded.
        unsafe {
            pg_sys::RegisterXactCallback(Some(transaction_ended), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(subtransaction_ended), std::ptr::null_mut());
        }
    }
}

/// Calls `action` when this transaction ends here: committed, rolled back or prepared.
pub(crate) fn at_end(action: fn()) {
    register_xact_callback(PgXactCallbackEvent::Commit, action);
    register_xact_callback(PgXactCallbackEvent::Abort, action);
    register_xact_callback(PgXactCallbackEvent::Prepare, action);
}

/// Calls `action` when this transaction has committed.
pub(crate) fn after_commit(action: fn()) {
    register_xact_callback(PgXactCallbackEvent::Commit, action);
}

/// Calls `action` when this transaction, or a part of it, is rolled back, or when it is prepared,
/// after which it may be.
pub(crate) fn unless_committed(action: fn()) {
    register_xact_callback(PgXactCallbackEvent::Abort, action);
    register_xact_callback(PgXactCallbackEvent::Prepare, action);
    register_subxact_callback(PgSubXactCallbackEvent::AbortSub, move |_, _| action());
}

fn notify(end: End) {
    if let Some(listener) = LISTENER.get() {
        listener(end);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn transaction_ended(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PREPARE,
    };
    match event {
        XACT_EVENT_PRE_COMMIT => notify(End::Committing),
        XACT_EVENT_COMMIT => notify(End::Committed),
        XACT_EVENT_ABORT => notify(End::Undone),
        XACT_EVENT_PREPARE => notify(End::Prepared),
        _ => {}
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn subtransaction_ended(
    event: pg_sys::SubXactEvent::Type,
    subtransaction: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        notify(End::PartUndone(subtransaction));
    }
}
