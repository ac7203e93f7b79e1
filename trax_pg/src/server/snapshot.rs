//! Snapshots that see each commit so far.

use pgrx::pg_sys;

/// Returns a snapshot of all commits so far, whatever the isolation level, and of this
/// transaction's own changes. During a parallel plan, in which a transaction changes nothing, the
/// server takes no such snapshot: in REPEATABLE READ and SERIALIZABLE the transaction's counts.
pub(crate) fn latest_snapshot() -> pg_sys::Snapshot {
    // SAFETY: a transaction is open.
    unsafe {
        if pg_sys::IsInParallelMode() {
            return pg_sys::GetTransactionSnapshot();
        }
        pg_sys::CommandCounterIncrement();
        pg_sys::GetLatestSnapshot()
    }
}
