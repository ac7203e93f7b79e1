//! Prepared transactions: the session that ends one reports the changes that could not be reported
//! when it was prepared.
//!
//! The session that prepares forgets all marks and hints, and the one that commits or rolls back
//! knows none of them. So shared memory remembers which prepared transactions changed something of
//! ours and what they make claimable; when such a one has ended, that is looked at again, and
//! everybody who waits looks. The session that ends one looks which have, and so does every cycle:
//! a subscription that applies a prepared transaction ends it without a statement. A restart, and a
//! crash of any process, forgets them: while a transaction is left that was prepared before it, the
//! end of one that nobody knows makes all hints void. A scheduler looks when it begins whether
//! there is one; where none does it is taken for granted.

use crate::changes;
use crate::memory;
use crate::server::hash::name_hash_64;
use crate::server::spi::{Spi, statement};
use crate::wake;
use pgrx::{pg_guard, pg_sys};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

statement!(PreparedFirst, "prepared/first.sql");

/// The prepared transaction that this session's last such statement was about, as a hash; 0 is
/// none.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Stores whether transactions of this database are left that were prepared before shared memory
/// began.
pub(crate) fn look_for_older(spi: &Spi) {
    if let Some(bell) = memory::bell() {
        bell.say_older_prepared(spi.query(PreparedFirst).len() > 0);
    }
}

/// Runs before a transaction statement; returns true when that ends a prepared transaction.
#[pg_guard]
pub(crate) unsafe extern "C-unwind" fn before(node: *mut pg_sys::Node) -> bool {
    use pg_sys::TransactionStmtKind::{
        TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_PREPARE, TRANS_STMT_ROLLBACK_PREPARED,
    };
    // SAFETY: the caller has seen the tag.
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
        // What it did counts as soon as it is seen. An error ends that with this session's
        // transaction.
        wake::mark(0);
        memory::suspend_bounds();
    }
    ends
}

/// Records that this session's transaction was prepared and has changed something of ours.
pub(crate) fn prepared() {
    changes::prepared(NAMED.load(Ordering::Relaxed));
}

/// Publishes what a prepared transaction did that has ended.
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
