//! Cancelling: waiting jobs end at once, and the workers of the others are asked to stop.

use super::ending::Ending;
use super::{GivenUp, end, given_up};
use crate::access_scope;
use crate::audit;
use crate::columns::Outcome;
use crate::group::require_known;
use crate::job_steps;
use crate::lease;
use crate::lease::Overdue;
use crate::metrics;
use crate::metrics::Stale;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::{changes, unreadable_job, unseen, work_queue};
use pgrx::Uuid;

statement!(GroupJobs, "outcome/group_jobs.sql", { group: TEXTOID } -> i64);
statement!(ManifestJobs, "outcome/manifest_jobs.sql", { manifest_id: INT8OID } -> i64);
/// How many jobs one statement locks: it is repeated from each job that has moved since it began.
const LOCKED_AT_ONCE: usize = 1000;

statement!(JobsLock, "outcome/lock_jobs.sql", { job_ids: INT8ARRAYOID } -> i64);
statement!(RunFind, "outcome/run_find.sql", { job_id: INT8OID } -> bool);
statement!(
    RunCancelQueued, "outcome/run_cancel_queued.sql",
    { job_ids: INT8ARRAYOID, reasons: TEXTARRAYOID, now: TIMESTAMPTZOID } -> GivenUp
);

sql_function!(
    trax_acknowledge_cancel,
    pg_finfo_trax_acknowledge_cancel,
    |call| {
        let job_id = call.required::<i64>(0, "job_id")?;
        let token = call.required::<Uuid>(1, "token")?;
        let now = Timestamp::now();
        let held = spi::connected(|spi| {
            Ok(acknowledge_cancel(
                spi,
                job_id,
                token,
                now,
                Stale::AcknowledgeCancel,
            ))
        })?;
        Ok(call.value(held))
    }
);

sql_function!(trax_cancel_own, pg_finfo_trax_cancel_own, |call| {
    let job_id = call.required::<i64>(0, "job_id")?;
    let token = call.required::<Uuid>(1, "token")?;
    let reason = call.beginning(2);
    let now = Timestamp::now();
    let held = spi::connected(|spi| {
        let Some(lease) = lease::take(spi, job_id, token) else {
            metrics::stale(Stale::CancelOwn, 1);
            return Ok(false);
        };
        end(spi, &[Ending::cancelled(lease, reason)], now, true);
        Ok(true)
    })?;
    Ok(call.value(held))
});

sql_function!(trax_cancel, pg_finfo_trax_cancel, |call| {
    as_owner(call, |caller| {
        let job_id = call.required::<i64>(0, "job_id")?;
        let tree = call.optional::<bool>(1).unwrap_or(true);
        let outcome = spi::connected(|spi| {
            let now = Timestamp::now();
            // A tree belongs to its root: descendants may be outside the caller's limits.
            let scope = access_scope::of_caller(spi, caller);
            scope.require_job(spi, job_id)?;
            let mut descendants = match tree {
                true => lock_trees(spi, &[job_id]),
                false => Vec::new(),
            };
            descendants.retain(|&descendant| descendant != job_id);
            let outcome = cancel(spi, job_id, now);
            // The job may have been queued, or moved to another group, since the first look.
            scope.require_job(spi, job_id)?;
            let count = cancel_locked(spi, &descendants, now);
            if count > 0 || matches!(outcome, "cancelled" | "requested") {
                let name = job_id.to_string();
                let note = match count {
                    0 => outcome.to_owned(),
                    1 => format!("{outcome}, and 1 descendant"),
                    more => format!("{outcome}, and {more} descendants"),
                };
                audit::record(spi, "cancel", audit::Kind::Job, &name, Some(&note));
            }
            Ok(outcome)
        })?;
        Ok(call.value(outcome))
    })
});

sql_function!(trax_cancel_group, pg_finfo_trax_cancel_group, |call| {
    let name = call.name(0, "name")?;
    let count = spi::connected(|spi| {
        require_known(spi, &name)?;
        let rows = spi.query(GroupJobs {
            group: arg(name.as_str()),
        });
        let jobs: Vec<i64> = rows.iter().collect();
        let count = cancel_trees(spi, &jobs, Timestamp::now());
        let note = format!("{count} jobs");
        audit::record(spi, "cancel", audit::Kind::Group, &name, Some(&note));
        Ok(count as i64)
    })?;
    Ok(call.value(count))
});

/// Ends an attempt whose worker stopped because it was asked to, or because its timeout is over;
/// returns false when the lease is lost or neither is the case.
pub(crate) fn acknowledge_cancel(
    spi: &Spi,
    job_id: i64,
    token: Uuid,
    now: Timestamp,
    call: Stale,
) -> bool {
    let Some(lease) = lease::take(spi, job_id, token) else {
        metrics::stale(call, 1);
        return false;
    };
    let ending = match (lease.cancelled, lease.timed_out) {
        (true, _) => Ending::cancelled(lease, None),
        (false, true) => Ending::overdue(lease, Overdue::TimedOut, now),
        // Its worker has measured the timeout, and stopped before a cycle asked it to.
        (false, false) if lease::is_late(spi, job_id, now) => {
            Ending::overdue(lease, Overdue::TimedOut, now)
        }
        (false, false) => return false,
    };
    end(spi, &[ending], now, true);
    true
}

/// Locks jobs and their descendants, and returns all of them, also some that have ended. A job that
/// is executed spawns no child while it is locked, and none after it was asked to stop: once the
/// tree is as it was before the locks, no descendant is missed. Children have larger ids than their
/// parents, so that those found later are locked in order too.
pub(crate) fn lock_trees(spi: &Spi, roots: &[i64]) -> Vec<i64> {
    // The first root, often the only job, is locked before the first read.
    let mut locked: Vec<i64> = roots.iter().min().copied().into_iter().collect();
    lock_jobs(spi, &locked);
    loop {
        let tree = job_steps::trees(spi, roots);
        if tree == locked {
            return tree;
        }
        lock_jobs(spi, &tree);
        locked = tree;
    }
}

/// Cancels waiting and executed jobs and their descendants; returns how many were cancelled or
/// asked to stop.
pub(crate) fn cancel_trees(spi: &Spi, roots: &[i64], now: Timestamp) -> usize {
    // All jobs before the locks that an outcome takes after its lease.
    cancel_locked(spi, &lock_trees(spi, roots), now)
}

/// Cancels a waiting or executed job.
fn cancel(spi: &Spi, job_id: i64, now: Timestamp) -> &'static str {
    for _ in 0..work_queue::LOOKS {
        if cancel_queued(spi, &[job_id], now) == 1 {
            return "cancelled";
        }
        if lease::request_cancel(spi, &[job_id]) == 1 {
            return "requested";
        }
        if spi
            .query(RunFind {
                job_id: arg(job_id),
            })
            .one()
        {
            return "finished";
        }
    }
    unseen::refuse_job(spi, job_id);
    "unknown"
}

/// Returns the live jobs of a manifest, waiting or executed.
pub(crate) fn jobs_of_manifest(spi: &Spi, manifest_id: i64) -> Vec<i64> {
    spi.query(ManifestJobs {
        manifest_id: arg(manifest_id),
    })
    .iter()
    .collect()
}

/// Cancels locked jobs; returns how many were cancelled or asked to stop.
fn cancel_locked(spi: &Spi, job_ids: &[i64], now: Timestamp) -> usize {
    cancel_queued(spi, job_ids, now) + lease::request_cancel(spi, job_ids)
}

/// Locks jobs in the order of their ids, each in the table that has it: a row of `work_queue` or of
/// `lease`. So calls that cancel the same jobs lock them in one order, wherever each job is. Waits
/// for an attempt that is just ending: its job then waits again, or has ended.
fn lock_jobs(spi: &Spi, job_ids: &[i64]) {
    for piece in job_ids.chunks(LOCKED_AT_ONCE) {
        let (mut left, mut looks) = (piece, 0);
        while let Some(moved) = spi
            .query(JobsLock {
                job_ids: arg(left.to_vec()),
            })
            .first()
        {
            let index = left.partition_point(|&job_id| job_id < moved);
            looks = if index == 0 { looks + 1 } else { 1 };
            // The job is in no table: it was deleted by hand, or is newer than the snapshot.
            let is_gone = looks == work_queue::LOOKS;
            left = &left[index + usize::from(is_gone)..];
            if is_gone {
                unseen::refuse_job(spi, moved);
                looks = 0;
            }
        }
    }
}

/// Cancels the waiting ones of the jobs; returns how many.
fn cancel_queued(spi: &Spi, job_ids: &[i64], now: Timestamp) -> usize {
    cancel_waiting(spi, job_ids, Vec::new(), now)
}

/// Cancels waiting jobs, each for a reason that its last run has as its error.
pub(crate) fn cancel_because(spi: &Spi, jobs: Vec<(i64, String)>, now: Timestamp) -> usize {
    let (job_ids, reasons): (Vec<i64>, Vec<String>) = jobs.into_iter().unzip();
    cancel_waiting(spi, &job_ids, reasons, now)
}

fn cancel_waiting(spi: &Spi, job_ids: &[i64], reasons: Vec<String>, now: Timestamp) -> usize {
    changes::taken();
    let cancel = || {
        let rows = spi.query(RunCancelQueued {
            job_ids: arg(job_ids.to_vec()),
            reasons: arg(reasons.clone()),
            now: arg(now),
        });
        Ok(rows.iter().collect::<Vec<GivenUp>>())
    };
    let cancelled = spi::isolated(cancel).or_else(|error| {
        if !error.is_unreadable() {
            return Err(error);
        }
        // Recorded jobs are cancelled without their input.
        unreadable_job::note(spi, &unreadable_job::find(spi, job_ids), now);
        cancel()
    });
    match cancelled {
        Ok(jobs) => given_up(spi, jobs, Outcome::Cancelled, now),
        Err(error) => error.raise(),
    }
}
