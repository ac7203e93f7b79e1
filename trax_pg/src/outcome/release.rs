//! Releases: an attempt ends without being used up.

use super::cancel::acknowledge_cancel;
use super::make_room;
use crate::error::Result;
use crate::lease;
use crate::limit::Shared;
use crate::metrics::Stale;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::RowLock;
use crate::{changes, wake};
use pgrx::Uuid;

row! {
    /// A job that waits again.
    struct Released {
        lane_id: i64,
        priority: i16,
        job_id: i64,
        concurrency_key: Option<String>,
        group_name: String,
        is_claimable: bool,
        manifest_id: Option<i64>,
    }
}
statement!(
    LeaseRelease, "outcome/lease_release.sql",
    { job_id: INT8OID, token: UUIDOID, now: TIMESTAMPTZOID, run_at: TIMESTAMPTZOID, waits_for: TEXTOID, wait_until: TIMESTAMPTZOID } -> Released
);

sql_function!(trax_release, pg_finfo_trax_release, |call| {
    let job_id = call.required::<i64>(0, "job_id")?;
    let token = call.required::<Uuid>(1, "token")?;
    let delay = call.optional_not_negative(2, "delay")?.unwrap_or(0);
    let now = Timestamp::now();
    let released = spi::connected(|spi| release(spi, job_id, token, delay, now))?;
    Ok(call.value(released))
});

/// Queues a job again without using the attempt; returns false when the lease is lost.
pub(crate) fn release(
    spi: &Spi,
    job_id: i64,
    token: Uuid,
    delay: i64,
    now: Timestamp,
) -> Result<bool> {
    let back = Return {
        run_at: now.plus(delay),
        waits_for: None,
        wait_until: None,
    };
    // A job that was asked to stop is not queued again: releasing it acknowledges the cancel.
    Ok(return_job(spi, job_id, token, &back, now)?
        || acknowledge_cancel(spi, job_id, token, now, Stale::Release))
}

/// Suspends a job without using the attempt; returns false when the lease is lost, or the job was
/// asked to stop and ends here.
pub(crate) fn suspend(
    spi: &Spi,
    job_id: i64,
    token: Uuid,
    back: &Return,
    now: Timestamp,
) -> Result<bool> {
    let suspended = return_job(spi, job_id, token, back, now)?;
    if !suspended {
        acknowledge_cancel(spi, job_id, token, now, Stale::Release);
    }
    Ok(suspended)
}

/// How a job goes back to the queue.
pub(crate) struct Return {
    pub(crate) run_at: Timestamp,
    /// The `waits_for` of a suspended job.
    pub(crate) waits_for: Option<&'static str>,
    pub(crate) wait_until: Option<Timestamp>,
}

impl Return {
    /// Returns whether a cycle makes the job claimable at a time.
    fn has_time(&self) -> bool {
        self.waits_for.is_none_or(|wait| wait == "time") || self.wait_until.is_some()
    }
}

fn return_job(spi: &Spi, job_id: i64, token: Uuid, back: &Return, now: Timestamp) -> Result<bool> {
    // The release counts the steps: one that another call records keeps the lease's row until it
    // commits, and is seen only by a statement that begins after that.
    let kept = lease::keep(spi, job_id, token, RowLock::Update)?;
    let Some(kept) = kept.filter(|kept| !kept.cancel_requested) else {
        return Ok(false);
    };
    let release = LeaseRelease {
        job_id: arg(job_id),
        token: arg(token),
        now: arg(now),
        run_at: arg(back.run_at),
        waits_for: back.waits_for.and_then(arg),
        wait_until: back.wait_until.and_then(arg),
    };
    let Some(row) = spi.change_latest(release).first() else {
        return Ok(false);
    };
    if row.is_claimable {
        changes::claimable(row.lane_id, row.priority, row.job_id);
    } else if back.has_time() {
        wake::mark(wake::DUE);
    }
    changes::lease_ended(job_id);
    let limited_group = kept.limited.then_some(row.group_name);
    let shared = Shared::of(row.concurrency_key, row.manifest_id).collect();
    make_room(spi, shared, limited_group.as_slice(), true);
    Ok(true)
}
