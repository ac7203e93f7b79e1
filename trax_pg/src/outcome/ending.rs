//! The end of one attempt that did not complete: retried, dead or cancelled.

use crate::columns::{Outcome, SQL_TASK};
use crate::lease::{Locked, Overdue};
use crate::retry::{Policy, Verdict};
use crate::server::clock::{Timestamp, interval_micros, micros};
use crate::server::random::random;
use crate::setting;
use crate::task;
use crate::task::Defaults;
use pgrx::pg_sys;
use std::time::Duration;

/// The error of an attempt that exceeded its timeout.
const TIMED_OUT: &str = "it ran longer than its timeout";

/// A worker's report of a failed attempt.
pub(crate) struct Failure {
    pub(crate) error: String,
    pub(crate) detail: Option<pg_sys::Datum>,
    pub(crate) retry_in: Option<i64>,
    pub(crate) permanent: bool,
    /// The attempt ended because the server asked the worker to stop.
    pub(crate) was_told_to_stop: bool,
}

/// The end of one attempt that did not complete.
pub(crate) struct Ending {
    pub(crate) lease: Locked,
    pub(crate) outcome: Outcome,
    pub(super) error: Option<String>,
    pub(super) detail: Option<pg_sys::Datum>,
    pub(crate) retry_at: Option<Timestamp>,
    /// The reason of its dead letter.
    pub(super) reason: Option<&'static str>,
    /// Its dead letter is acknowledged already.
    pub(super) acknowledged: bool,
    /// An attempt that never began is not spent.
    pub(super) begun: bool,
}

impl Ending {
    pub(super) fn cancelled(lease: Locked, error: Option<String>) -> Self {
        Self {
            lease,
            outcome: Outcome::Cancelled,
            error,
            detail: None,
            retry_at: None,
            reason: None,
            acknowledged: false,
            begun: true,
        }
    }

    pub(super) fn failed(lease: Locked, failure: Failure, now: Timestamp) -> Self {
        // A cancelled job is neither retried nor dead-lettered, whatever its worker reports.
        if lease.cancelled {
            return Self {
                detail: failure.detail,
                ..Self::cancelled(lease, Some(failure.error))
            };
        }
        let outcome = if lease.timed_out {
            Outcome::Timeout
        } else {
            Outcome::Error
        };
        let error = if lease.timed_out && failure.was_told_to_stop {
            TIMED_OUT.to_owned()
        } else {
            failure.error
        };
        let mut ending = Self::judged(lease, outcome, error, failure.permanent, now);
        ending.detail = failure.detail;
        if let (Some(_), Some(retry_in)) = (ending.retry_at, failure.retry_in) {
            ending.retry_at = Some(now.plus(retry_in));
        }
        ending
    }

    pub(super) fn overdue(lease: Locked, overdue: Overdue, now: Timestamp) -> Self {
        if lease.cancelled {
            let error = lost(&lease, "its worker did not answer");
            return Self::cancelled(lease, Some(error));
        }
        match overdue {
            Overdue::LeaseExpired => {
                let error = lost(&lease, "the lease expired without a heartbeat");
                Self::judged(lease, Outcome::LeaseExpired, error, false, now)
            }
            Overdue::NotBegun => Self {
                lease,
                outcome: Outcome::LeaseExpired,
                error: Some("its worker was lost before it reported the begin".to_string()),
                detail: None,
                retry_at: Some(now),
                reason: None,
                acknowledged: false,
                begun: false,
            },
            Overdue::TimedOut => {
                let error = lost(&lease, TIMED_OUT);
                Self::judged(lease, Outcome::Timeout, error, false, now)
            }
        }
    }

    /// Returns whether the job is retried or dead.
    fn judged(
        lease: Locked,
        outcome: Outcome,
        error: String,
        permanent: bool,
        now: Timestamp,
    ) -> Self {
        let max_retries = lease
            .max_retries
            .unwrap_or_else(setting::default_max_retries);
        let tasks = task::all();
        let defaults = tasks.of(&lease.task);
        let (retry_at, reason) = match Verdict::after(lease.attempt, max_retries, permanent) {
            // Its worker is gone, which is not the job's fault: the job runs again at once.
            Verdict::Retry if outcome == Outcome::LeaseExpired => (Some(now), None),
            Verdict::Retry => (Some(now.plus(retry_delay(&lease, defaults))), None),
            Verdict::Dead if permanent => (None, Some("failed permanently")),
            Verdict::Dead => (None, Some("attempts spent")),
        };
        let acknowledged = reason.is_some() && defaults.is_some_and(|task| task.acknowledges);
        Self {
            lease,
            outcome,
            error: Some(error),
            detail: None,
            retry_at,
            reason,
            acknowledged,
            begun: true,
        }
    }
}

/// Returns how long a job waits before its next attempt, in microseconds.
fn retry_delay(lease: &Locked, defaults: Option<&Defaults>) -> i64 {
    let delay = match &lease.retry_delay {
        Some(own) => Duration::from_micros(interval_micros(own).max(0) as u64),
        None => setting::retry_delay(),
    };
    let policy = Policy {
        delay,
        backoff: defaults
            .and_then(|task| task.backoff)
            .unwrap_or_else(setting::retry_backoff),
        max: defaults
            .and_then(Defaults::longest_delay)
            .unwrap_or_else(setting::retry_delay_max),
    };
    micros(policy.delay_before_attempt(lease.attempt, random()))
}

/// Returns why an unreported attempt is over, and its possible effect.
fn lost(lease: &Locked, why: &str) -> String {
    match lease.task.as_str() {
        SQL_TASK => format!(
            "{why}: a statement in a transaction took no effect, one outside may have, or still may"
        ),
        _ => why.to_owned(),
    }
}
