//! Durability: the commits that need not wait for the disk.
//!
//! A claim or a heartbeat that is lost in a crash of the server costs only time: the job waits
//! again, and the worker's token, which is random, holds no lease. So a transaction that has done
//! nothing else is committed as with `synchronous_commit = off`; its WAL is flushed by the next
//! commit that waits, for example the completion of its jobs, or within three times
//! `wal_writer_delay`.
//!
//! Holds: no other change is committed this way. The WAL of such a transaction begins and ends with
//! the extension's, which the end of its last record shows; a caller's transaction block is left
//! alone.

use crate::server::transaction;
use crate::server::transaction::End;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The end of the last WAL record of a lazy step; 0 is none.
static LAZY_UNTIL: AtomicU64 = AtomicU64::new(0);
/// The setting to restore; -1 is none.
static SETTING: AtomicI32 = AtomicI32::new(-1);

/// Returns whether nothing has been written in this transaction and nothing is known to follow. WAL
/// of reads, such as hints on a server with checksums, has no transaction id and needs no commit.
pub(crate) fn is_untouched() -> bool {
    // SAFETY: reads the state of this backend.
    unsafe {
        !pg_sys::IsTransactionBlock()
            && pg_sys::GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId
    }
}

/// Allows a crash to lose the writes of this transaction so far, which was untouched before.
pub(crate) fn may_be_lost() {
    transaction::listen();
    // SAFETY: reads the state of this backend.
    LAZY_UNTIL.store(unsafe { pg_sys::XactLastRecEnd }, Ordering::Relaxed);
}

/// Makes the commit of this transaction wait for the disk, whatever the settings.
pub(crate) fn commit_durably() {
    // SAFETY: sets a flag of this transaction.
    unsafe { pg_sys::ForceSyncCommit() };
}

pub(crate) fn ended(end: End) {
    // SAFETY: a backend has one thread; the variable is read when the commit is recorded, after
    // `Committing`, and restored by the next event.
    unsafe {
        match end {
            End::Committing => {
                let until = LAZY_UNTIL.load(Ordering::Relaxed);
                if until != 0 && until == pg_sys::XactLastRecEnd {
                    SETTING.store(pg_sys::synchronous_commit, Ordering::Relaxed);
                    pg_sys::synchronous_commit =
                        pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32;
                }
            }
            End::PartUndone(_) => {}
            End::Committed | End::Undone | End::Prepared => {
                LAZY_UNTIL.store(0, Ordering::Relaxed);
                let setting = SETTING.swap(-1, Ordering::Relaxed);
                if setting >= 0 {
                    pg_sys::synchronous_commit = setting;
                }
            }
        }
    }
}
