//! Limits: how many jobs may run at once in the database, in a group, of a manifest, and with a
//! concurrency key.
//!
//! Limits are counted, not stored: a lease exists exactly while its job runs. Enters: the limits,
//! and the committed leases. Leaves: the *room* for a claim, the number of further jobs that it may
//! take. Holds: a claim counts under a lock on the limit that it keeps until it commits, so limits
//! are exact with any number of concurrent claims. A change of a limit is the change of a number: a
//! higher one counts at once, and after a lower one no job starts until enough have ended.
//!
//! The usual design has a row for each slot of a limit. Such a row would be written twice for each
//! job, and removed when the limit shrinks. The price of the count is that claims of one limited
//! group run one after the other, commit by commit; a claim that finds the lock taken skips the
//! group.
//!
//! A count begins at its bound (`memory/bound.rs`), so it does not read leases that have ended
//! while some session holds a snapshot: after 5,000 jobs of one group a claim touches 16 buffers,
//! and 158 without bounds.
//!
//! Jobs without room are not scanned again and again: the lanes of a full group are not read. The
//! first claim that meets a job whose key or manifest has no room *blocks* it, which takes it out
//! of its lane (`waits_for`); the outcome that makes room *unblocks* the next one.

mod counter;
pub(crate) mod database;
pub(crate) mod group;
mod key_and_manifest;
mod repair;

pub(crate) use counter::{Counter, Held};
pub(crate) use key_and_manifest::{
    Blocked, Shared, allowed, block, free, free_left, held, holders_of, let_next_in, unblock_group,
    unblock_manifest,
};
pub(crate) use repair::repair;

use crate::server::call::sql_function;
use crate::server::lock::Lock;
use crate::server::spi::arg;

// Returns the locks without which no claim takes a job, as `pg_locks` shows them.
sql_function!(trax_limit_locks, pg_finfo_trax_limit_locks, |call| {
    let (group, key) = (
        call.name(0, "group_name")?,
        call.optional_text(1, "concurrency_key")?,
    );
    let manifest = call.optional::<i64>(2);
    let locks = [
        Some((format!("the group \"{group}\""), Lock::Group(&group))),
        key.as_deref()
            .map(|key| (format!("the concurrency key \"{key}\""), Lock::Key(key))),
        manifest.map(|id| ("the manifest of the job".to_owned(), Lock::Manifest(id))),
    ];
    let mut rows = call.rows();
    for (name, lock) in locks.into_iter().flatten() {
        let (class, object, part) = lock.columns();
        rows.push(&[arg(name), arg(class), arg(object), arg(part)]);
    }
    Ok(rows.end())
});

/// How many more jobs a claim may take under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Unlimited,
    For(i64),
    /// Another transaction has locked the limit: its jobs are left where they are.
    Busy,
}

impl Room {
    pub(crate) fn is_none(self) -> bool {
        match self {
            Self::Unlimited => false,
            Self::For(left) => left <= 0,
            Self::Busy => true,
        }
    }

    pub(crate) fn take(&mut self) {
        if let Self::For(left) = self {
            *left -= 1;
        }
    }
}
