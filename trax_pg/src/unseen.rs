//! Rows that are newer than the snapshot of a transaction.
//!
//! A transaction in REPEATABLE READ does not see a job or a lease that was created after its first
//! statement. A call that finds none there must not report the job as unknown or the lease as lost.

use crate::error::Error;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use pgrx::Uuid;

statement!(UnseenJob, "unseen/job.sql", { job_id: INT8OID } -> bool);
statement!(
    UnseenLease, "unseen/lease.sql",
    { job_ids: INT8ARRAYOID, tokens: UUIDARRAYOID } -> bool
);

/// Raises 40001 if a job exists that this transaction cannot see.
pub(crate) fn refuse_job(spi: &Spi, job_id: i64) {
    if spi::keeps_snapshot()
        && spi
            .query_latest(UnseenJob {
                job_id: arg(job_id),
            })
            .one()
    {
        Error::changed_since_snapshot().raise();
    }
}

/// Raises 40001 if one of these leases is held and this transaction cannot see it.
pub(crate) fn refuse_lease(spi: &Spi, job_ids: Vec<i64>, tokens: Vec<Uuid>) {
    if !spi::keeps_snapshot() || job_ids.is_empty() {
        return;
    }
    let unseen = UnseenLease {
        job_ids: arg(job_ids),
        tokens: arg(tokens),
    };
    if spi.query_latest(unseen).one() {
        Error::changed_since_snapshot().raise();
    }
}
