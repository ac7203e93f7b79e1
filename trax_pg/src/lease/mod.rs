//! Leases: the right of one worker to execute one attempt until a time.
//!
//! Enters: leases granted by a claim. Leaves: a lease extended, released, asked to stop, or found
//! overdue. Holds: only the token changes a lease; no index knows a deadline, so that a heartbeat
//! updates none; a heartbeat waits for no lock.
//!
//! A job *ahead* is one that its worker has claimed and has not reported as begun. Without the
//! argument `places` of the claim none is. With it all are, because the answer to the claim may be
//! lost, until the first heartbeat that does not name them as `ahead`, where their timeouts begin.
//! A job that is lost before has not used an attempt. This applies only 3 times in a row
//! ([`FREE_LOSSES`]), so that a job that ends its worker before any heartbeat fails in the end. The
//! value of `places` is the number of jobs that the worker begins as soon as it has the answer: the
//! first ones in the order of claiming. A rate starts only these.

mod heartbeat;
mod overdue;
mod reaper;

use crate::changes;
use crate::columns::Leased;
use crate::error::{Error, Result};
use crate::metrics;
use crate::metrics::Stale;
use crate::server::call::{Call, sql_function};
use crate::server::clock::{Timestamp, interval, later, micros};
use crate::server::durability;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Index, Key, RowLock, Table, Taken, View, Walk};
use crate::{setting, unseen, wake};
pub(crate) use overdue::{Overdue, cancel_timed_out, forget_extensions, put_off, take_overdue};
use pgrx::Uuid;
use pgrx::pg_sys;
pub(crate) use reaper::Reaper;
use std::collections::HashSet;

/// How often in a row a job that was fetched ahead may be lost before it begins, without using an
/// attempt.
pub(crate) const FREE_LOSSES: i64 = 3;

statement!(LeaseTake, "lease/take.sql", { job_id: INT8OID, token: UUIDOID } -> Locked);
statement!(LeaseIsLate, "lease/is_late.sql", { job_id: INT8OID, now: TIMESTAMPTZOID } -> bool);
statement!(LeaseCancel, "lease/cancel.sql", { job_ids: INT8ARRAYOID } -> i64);

sql_function!(trax_heartbeat, pg_finfo_trax_heartbeat, |call| {
    let held = Held::from_call(call)?;
    let lease = call
        .optional_positive(2, "lease")?
        .unwrap_or_else(|| micros(setting::default_lease()));
    let ahead: HashSet<i64> = match call.datum(3) {
        Some(_) => call.array(3, "ahead")?.into_iter().collect(),
        None => HashSet::new(),
    };
    let untouched = durability::is_untouched();
    let mut rows = call.rows();
    spi::connected(|spi| {
        // Read after a wait for the table, or the extended leases would have expired by then.
        let leases = Table::open(Leased::TABLE, Leased::ALL);
        let now = Timestamp::now();
        leases.close();
        let beats = heartbeat::extend(&held, &ahead, now, now.plus(lease))?;
        let stale = held.job_ids.len().saturating_sub(beats.len());
        if stale > 0 {
            let (job_ids, tokens) = held.without(|job_id| beats.contains_key(&job_id));
            unseen::refuse_lease(spi, job_ids, tokens);
        }
        metrics::stale(Stale::Heartbeat, stale);
        // A row for each lease in the call, in the order of the call: a worker may name two of
        // one job, that of a lost attempt and that of the next, which it has claimed too.
        for (job_id, token) in held.job_ids.iter().zip(&held.tokens) {
            let row = match beats.get(job_id).filter(|beat| beat.token == *token) {
                Some(beat) => [
                    arg(*job_id),
                    arg(true),
                    arg(beat.cancel_requested),
                    arg(beat.expires_at),
                ],
                None => [arg(*job_id), arg(false), arg(false), None],
            };
            rows.push(&row);
        }
        Ok(())
    })?;
    if untouched {
        durability::may_be_lost();
    }
    Ok(rows.end())
});

// The scheduler looks at once at a lease whose deadline a user has changed.
sql_function!(
    trax_deadline_changed_manually,
    pg_finfo_trax_deadline_changed_manually,
    |_call| {
        if !spi::is_ours() {
            wake::mark(wake::DUE);
        }
        Ok(pg_sys::Datum::from(0))
    }
);

/// Returns when an attempt that begins at a time has run too long; `timeout` is that of its job.
fn timeout_from(begin: Timestamp, timeout: Option<pg_sys::Datum>) -> Result<Timestamp> {
    let timeout = match timeout {
        None => arg(interval(micros(setting::default_timeout()))?),
        given => given,
    };
    Ok(later(begin, timeout))
}

/// The leases that a worker reports to hold: a token beside each job.
pub(crate) struct Held {
    pub(crate) job_ids: Vec<i64>,
    pub(crate) tokens: Vec<Uuid>,
}

impl Held {
    /// Returns the first two arguments of a call.
    pub(crate) fn from_call(call: &Call) -> Result<Self> {
        spi::require_primary()?;
        let job_ids = call.array::<i64>(0, "job_ids")?;
        let tokens = call.array::<Uuid>(1, "tokens")?;
        same_length("tokens", tokens.len(), job_ids.len())?;
        Ok(Self { job_ids, tokens })
    }

    /// Returns the leases whose job does not satisfy `is_one`.
    pub(crate) fn without(&self, is_one: impl Fn(i64) -> bool) -> (Vec<i64>, Vec<Uuid>) {
        let all = self.job_ids.iter().zip(&self.tokens);
        all.filter(|(job_id, _)| !is_one(**job_id)).unzip()
    }

    /// Returns the positions in ascending order of job, the order in which leases are locked.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.job_ids.len()).collect();
        order.sort_by_key(|&index| self.job_ids[index]);
        order
    }

    /// Goes to the lease at `index`, which must not be before the previous one of the walk; returns
    /// false when the lease is lost. `later` are the indexes of later calls.
    pub(crate) fn finds(&self, walk: &mut Walk, index: usize, later: &[usize]) -> bool {
        let later = later.iter().map(|&at| self.job_ids[at]);
        walk.goes_to(self.job_ids[index], later)
            && walk.scan().get::<Uuid>(Leased::Token) == Some(self.tokens[index])
    }
}

/// Returns an error for an array whose length is not that of `job_ids`.
pub(crate) fn same_length(name: &str, length: usize, jobs: usize) -> Result<()> {
    if length == jobs {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "arguments \"job_ids\" and \"{name}\" must have the same length"
    ))
    .detail(format!("job_ids has {jobs} elements, {name} has {length}."))
    .hint(format!(
        "Specify one element of {name} for each job, in the same order."
    )))
}

row! {
    /// A lease whose row this transaction has locked.
    pub(crate) struct Locked {
        job_id: i64,
        attempt: i32,
        max_retries: Option<i32>,
        retry_delay: Option<pgrx::datum::Interval>,
        /// The job was cancelled.
        cancelled: bool,
        /// The attempt was asked to stop because it ran too long.
        timed_out: bool,
        manifest_id: Option<i64>,
        unique_key: Option<String>,
        concurrency_key: Option<String>,
        /// The group towards whose limit it counts.
        limited_group: Option<String>,
        task: String,
        started_at: Timestamp,
        parent_job_id: Option<i64>,
    }
}

/// Locks the lease of a job, if `token` still holds it.
pub(crate) fn take(spi: &Spi, job_id: i64, token: Uuid) -> Option<Locked> {
    let lease = spi
        .query(LeaseTake {
            job_id: arg(job_id),
            token: arg(token),
        })
        .first();
    if lease.is_none() {
        unseen::refuse_lease(spi, vec![job_id], vec![token]);
    }
    lease
}

/// A lease that this transaction keeps.
pub(crate) struct Kept {
    pub(crate) attempt: i32,
    pub(crate) cancel_requested: bool,
    /// The job's group had a limit when the lease was granted.
    pub(crate) limited: bool,
}

/// Keeps the lease of a job until the transaction ends, if `token` still holds it. With
/// [`RowLock::KeyShare`] only its end waits for that, with [`RowLock::Share`] each change.
pub(crate) fn keep(spi: &Spi, job_id: i64, token: Uuid, lock: RowLock) -> Result<Option<Kept>> {
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let index = Index::open(&leases, c"lease_pkey");
    let kept = loop {
        let view = View::of_transaction();
        let scan = index.scan(&view, 1);
        scan.seek([Key::equals(1, job_id)]);
        let is_held = scan.next() && scan.get::<Uuid>(Leased::Token) == Some(token);
        let taken = if is_held {
            leases.keep(scan.tid(), &view, lock)
        } else {
            Taken::No
        };
        let kept = (taken == Taken::Yes).then(|| Kept {
            attempt: scan.get(Leased::Attempt).unwrap_or_default(),
            cancel_requested: scan.get(Leased::CancelRequested).unwrap_or_default(),
            limited: scan.get(Leased::Limited).unwrap_or_default(),
        });
        scan.end();
        view.end();
        if taken != Taken::Changed {
            break kept;
        }
        if spi::keeps_snapshot() {
            return Err(Error::changed_since_snapshot());
        }
    };
    index.close();
    leases.close();
    if kept.is_none() {
        unseen::refuse_lease(spi, vec![job_id], vec![token]);
    }
    Ok(kept)
}

/// Extends the lease of a job until this many microseconds from now, if `token` still holds it.
pub(crate) fn extend_one(job_id: i64, token: Uuid, micros: i64) -> Result<()> {
    let held = Held {
        job_ids: vec![job_id],
        tokens: vec![token],
    };
    let now = Timestamp::now();
    heartbeat::extend(&held, &HashSet::new(), now, now.plus(micros)).map(|_| ())
}

/// Returns whether an attempt has run longer than its timeout.
pub(crate) fn is_late(spi: &Spi, job_id: i64, now: Timestamp) -> bool {
    spi.query(LeaseIsLate {
        job_id: arg(job_id),
        now: arg(now),
    })
    .one()
}

/// Asks the workers of jobs to stop, which they see when this commits; returns how many jobs are
/// being executed.
pub(crate) fn request_cancel(spi: &Spi, job_ids: &[i64]) -> usize {
    let asked = spi.query(LeaseCancel {
        job_ids: arg(job_ids.to_vec()),
    });
    changes::cancel_requested(asked.iter());
    asked.len()
}
