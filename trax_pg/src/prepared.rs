//! Prepared transactions: the session that ends one reports the changes that could not be reported
//! when it was prepared.
//!
//! PREPARE TRANSACTION drops the session's marks and hints, and the session that commits or rolls
//! back has none of them. So shared memory records which prepared transactions changed the
//! extension's tables and which jobs they make claimable. After the end of one, those jobs are
//! checked again and all waiting sessions are woken. The session that ends one checks which have
//! ended, and so does every cycle: a subscription that applies a prepared transaction ends it
//! without a statement. A restart, and a crash of any process, loses the records: while a
//! transaction from before it is left, the end of an unrecorded one invalidates all hints. A
//! scheduler checks at its start whether there is one; without a scheduler that is assumed.

use crate::changes;
use crate::memory;
use crate::server::hash::name_hash_64;
use crate::server::spi::{Spi, statement};
use crate::wake;
use pgrx::{pg_guard, pg_sys};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

statement!(PreparedFirst, "prepared/first.sql");

/// The prepared transaction that this session's last such statement named, as a hash; 0 is none.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Stores whether this database has transactions left that were prepared before shared memory was
/// created.
pub(crate) fn look_for_older(spi: &Spi) {
    if let Some(bell) = memory::bell() {
        bell.set_older_prepared(spi.query(PreparedFirst).len() > 0);
    }
}

/// Runs before a transaction statement; returns true when that ends a prepared transaction.
#[pg_guard]
pub(crate) unsafe extern "C-unwind" fn before(node: *mut pg_sys::Node) -> bool {
    use pg_sys::TransactionStmtKind::{
        TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_PREPARE, TRANS_STMT_ROLLBACK_PREPARED,
    };
    // SAFETY: the caller has checked the tag.
    let statement = unsafe { &*node.cast::<pg_sys::TransactionStmt>() };
    let ends = matches!(
        statement.kind,
        TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED
    );
    if ends || statement.kind == TRANS_STMT_PREPARE {
        // SAFETY: these kinds have a name.
        let name = unsafe { CStr::from_ptr(statement.gid) };
        let hash = name_hash_64(&[&name.to_string_lossy()]).max(1);
        NAMED.store(hash, Ordering::Relaxed);
    }
    if ends {
        // Its changes count as soon as they are visible. An error ends that with this session's
        // transaction.
        wake::mark(0);
        memory::suspend_bounds();
    }
    ends
}

/// Records that this session's transaction was prepared and has changed the extension's tables.
pub(crate) fn prepared() {
    changes::prepared(NAMED.load(Ordering::Relaxed));
}

/// Publishes the changes of a prepared transaction that has ended.
#[pg_guard]
pub(crate) extern "C-unwind" fn ended() {
    memory::resume_bounds();
    let ended = changes::prepared_ended();
    if !ended.is_empty() {
        wake::all();
    }
    if ended.contains(&NAMED.load(Ordering::Relaxed)) {
        return;
    }
    if let Some(bell) = memory::bell()
        && bell.has_older_prepared()
    {
        memory::forget();
        bell.configure();
        wake::all();
    }
}

/// Looks for prepared transactions that have ended without a statement; for a cycle.
pub(crate) fn look_for_ended() {
    if !changes::prepared_ended().is_empty() {
        wake::all();
    }
}
