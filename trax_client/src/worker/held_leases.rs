//! The leases that this process holds, from the claim to the acknowledged outcome.
//!
//! Shared by the dispatcher and the heartbeat thread. A lease that was not extended for its length
//! counts as lost: another worker may hold the job, regardless of later answers. The length is
//! measured from before the call, by a clock that advances during suspend (`clock`).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cancellation::{Reason, Trigger};
use tokio::sync::Notify;

use crate::address::Address;
use crate::clock::Moment;
use crate::id::{JobId, Token};
use crate::job::Beat;
use crate::json::Json;
use crate::reached;

/// The server counts a timeout from the report of the begin, which comes a moment after the begin.
const REPORT_DELAY: Duration = Duration::from_millis(250);

struct Lease {
    token: Token,
    trigger: Trigger,
    valid_until: Moment,
    timeout: Option<Duration>,
    /// When to ask a handler that has begun to stop; `None` once it was asked.
    times_out_at: Option<Moment>,
    begin: Begin,
    /// When a notification named the job for cancellation; `None` once a heartbeat has checked.
    asked_at: Option<Moment>,
    /// The handler's latest progress report, if not yet sent to the server.
    progress: Option<Json>,
}

impl Lease {
    fn end(&self) -> Moment {
        let timeout = self.times_out_at.unwrap_or(self.valid_until);
        self.valid_until.min(timeout)
    }

    fn is_unreported(&self, until: Moment) -> bool {
        matches!(self.begin, Begin::Unreported(at) if at <= until) || self.asked_at.is_some()
    }

    /// Tells the handler that the lease is lost, unless it has completed the job: such a lease ends
    /// with the handler's transaction.
    fn lose(&self) {
        if !reached::has_completed(self.token) {
            self.trigger.cancel(Reason::LeaseLost);
        }
    }
}

/// Whether a handler has begun the job.
#[derive(Clone, Copy)]
enum Begin {
    No,
    /// Begun at this moment, not yet known to the server.
    Unreported(Moment),
    Reported,
}

/// Returns the lease with this token; `None` if the job is held under another token or not at all.
fn of(leases: &mut HashMap<JobId, Lease>, job_id: JobId, token: Token) -> Option<&mut Lease> {
    leases.get_mut(&job_id).filter(|lease| lease.token == token)
}

#[derive(Default)]
pub(crate) struct HeldLeases {
    leases: Mutex<HashMap<JobId, Lease>>,
    begun: Notify,
    reported: Notify,
    inserted: Notify,
    /// When a heartbeat was last answered.
    beaten_at: Mutex<Option<Moment>>,
    beaten: Notify,
    /// The database that the jobs come from; `None` in a test that runs a job inline.
    database: Option<Address>,
}

impl HeldLeases {
    /// Returns an empty set of leases for jobs from this database.
    pub(crate) fn of(database: Address) -> Self {
        HeldLeases {
            database: Some(database),
            ..Self::default()
        }
    }

    pub(crate) fn database(&self) -> Option<&Address> {
        self.database.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Lease>> {
        // No code panics under the lock, and the map would stay consistent.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lease of a claim that was sent at `sent`. An older lease on the same job is lost.
    pub(crate) fn insert(
        &self,
        (job_id, token): (JobId, Token),
        trigger: Trigger,
        sent: Moment,
        lease: Duration,
        timeout: Option<Duration>,
    ) {
        let lease = Lease {
            token,
            trigger,
            valid_until: sent + lease,
            timeout,
            times_out_at: None,
            begin: Begin::No,
            asked_at: None,
            progress: None,
        };
        if let Some(older) = self.lock().insert(job_id, lease) {
            older.lose();
        }
        self.inserted.notify_one();
    }

    pub(crate) fn remove(&self, job_id: JobId, token: Token) {
        let mut leases = self.lock();
        if of(&mut leases, job_id, token).is_some() {
            leases.remove(&job_id);
        }
    }

    /// Marks the job as begun, and returns whether its lease is still held.
    pub(crate) fn begin(&self, job_id: JobId, token: Token, now: Moment) -> bool {
        let mut leases = self.lock();
        let lease = of(&mut leases, job_id, token);
        let Some(lease) = lease.filter(|lease| lease.valid_until > now) else {
            return false;
        };
        // Taken under the lock, so that every call sent later includes the begin.
        let begun = Moment::now();
        lease.begin = Begin::Unreported(begun);
        lease.times_out_at = lease.timeout.and_then(|timeout| {
            let late = timeout.checked_add(REPORT_DELAY)?;
            begun.checked_add(late)
        });
        self.begun.notify_one();
        true
    }

    /// Returns the jobs of `jobs` that no handler has begun.
    pub(crate) fn ahead(&self, jobs: &[(JobId, Token)]) -> Vec<JobId> {
        let mut leases = self.lock();
        let mut waits = |job_id, token| {
            of(&mut leases, job_id, token).is_some_and(|lease| matches!(lease.begin, Begin::No))
        };
        jobs.iter()
            .filter(|&&(job_id, token)| waits(job_id, token))
            .map(|&(job_id, _)| job_id)
            .collect()
    }

    /// Records that jobs may be asked to stop. The payload of `trax_cancel` names them: "7,8"; an
    /// empty payload means all.
    pub(crate) fn hear_cancels(&self, payload: &str) {
        let named: HashSet<i64> = payload
            .split(',')
            .filter_map(|id| id.parse().ok())
            .collect();
        let mut leases = self.lock();
        let mut is_any_held = false;
        for (job_id, lease) in leases.iter_mut() {
            if payload.is_empty() || named.contains(&job_id.0) {
                lease.asked_at = Some(Moment::now());
                is_any_held = true;
            }
        }
        if is_any_held {
            self.begun.notify_one();
        }
    }

    /// Completes when a handler has begun since the last call, or a job may be asked to stop.
    /// Cancel safe.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Returns the leases whose begin by `until` the server does not know, and those that may be
    /// asked to stop.
    pub(crate) fn unreported(&self, until: Moment) -> Vec<(JobId, Token)> {
        self.those(|lease| lease.is_unreported(until))
    }

    /// Returns whether a begin is unknown to the server, or a lease must be checked for a stop.
    pub(crate) fn is_any_unreported(&self) -> bool {
        let now = Moment::now();
        self.lock().values().any(|lease| lease.is_unreported(now))
    }

    /// Completes when a lease is held.
    pub(crate) async fn any_held(&self) {
        while self.lock().is_empty() {
            self.inserted.notified().await;
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<(JobId, Token)> {
        self.those(|_| true)
    }

    fn those(&self, wanted: impl Fn(&Lease) -> bool) -> Vec<(JobId, Token)> {
        let leases = self.lock();
        let those = leases.iter().filter(|(_, lease)| wanted(lease));
        those.map(|(id, lease)| (*id, lease.token)).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the earliest end of a lease or timeout.
    pub(crate) fn earliest_end(&self) -> Option<Moment> {
        let leases = self.lock();
        let ends = leases.values().map(Lease::end);
        ends.min()
    }

    /// Records that a heartbeat was answered, or that the wait for one begins on a new connection.
    pub(crate) fn beat(&self) {
        *self.beaten_at() = Some(Moment::now());
        self.beaten.notify_one();
    }

    /// Completes when a heartbeat was answered since the last call. Cancel safe.
    pub(crate) async fn beaten(&self) {
        self.beaten.notified().await;
    }

    /// Returns the moment by which a heartbeat must be answered.
    pub(crate) fn heard_until(&self, limit: Duration) -> Option<Moment> {
        self.beaten_at().map(|at| at + limit)
    }

    fn beaten_at(&self) -> MutexGuard<'_, Option<Moment>> {
        self.beaten_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the server's answers to a heartbeat sent at `sent`, in the order of `asked`. If a
    /// job was claimed again meanwhile, the answer does not concern its new lease.
    pub(crate) fn record_beats(
        &self,
        asked: &[(JobId, Token)],
        beats: &[Beat],
        sent: Moment,
        length: Duration,
    ) {
        let mut leases = self.lock();
        for ((job_id, token), beat) in asked.iter().zip(beats) {
            let Some(lease) = of(&mut leases, *job_id, *token) else {
                continue;
            };
            if !beat.held {
                lease.lose();
                continue;
            }
            lease.valid_until = sent + length;
            if matches!(lease.begin, Begin::Unreported(since) if since < sent) {
                lease.begin = Begin::Reported;
            }
            if lease.asked_at.is_some_and(|at| at < sent) {
                lease.asked_at = None;
            }
            if beat.cancel_requested {
                let now = Moment::now() + REPORT_DELAY;
                let late = lease.times_out_at.is_some_and(|at| now >= at);
                lease.trigger.cancel(if late {
                    Reason::Timeout
                } else {
                    Reason::Cancelled
                });
            }
        }
    }

    /// Cancels and removes every lease that was not extended in time. Asks handlers that have
    /// exceeded their timeout to stop.
    pub(crate) fn expire(&self, now: Moment) {
        self.lock().retain(|_, lease| {
            let alive = lease.valid_until > now;
            if !alive {
                lease.lose();
            } else if lease.times_out_at.is_some_and(|at| at <= now) {
                lease.times_out_at = None;
                lease.trigger.cancel(Reason::Timeout);
            }
            alive
        });
    }

    /// Keeps a handler's progress report, replacing an earlier one of the job.
    pub(crate) fn report(&self, job_id: JobId, token: Token, progress: Json) {
        let mut leases = self.lock();
        if let Some(lease) = of(&mut leases, job_id, token) {
            lease.progress = Some(progress);
            self.reported.notify_one();
        }
    }

    /// Completes when progress was reported since the last call. Cancel safe.
    pub(crate) async fn reported(&self) {
        self.reported.notified().await;
    }

    /// Takes all reports.
    pub(crate) fn take_reports(&self) -> Vec<(JobId, Token, Json)> {
        self.lock()
            .iter_mut()
            .filter_map(|(id, lease)| Some((*id, lease.token, lease.progress.take()?)))
            .collect()
    }

    /// Puts back reports that could not be sent, unless there is a newer one.
    pub(crate) fn restore_reports(&self, reports: Vec<(JobId, Token, Json)>) {
        let mut leases = self.lock();
        for (job_id, token, progress) in reports {
            if let Some(lease) = of(&mut leases, job_id, token) {
                lease.progress.get_or_insert(progress);
            }
        }
    }

    /// Records that the server reported this lease as lost.
    pub(crate) fn lost(&self, job_id: JobId, token: Token) {
        if let Some(lease) = of(&mut self.lock(), job_id, token) {
            lease.lose();
        }
    }

    pub(crate) fn cancel_all(&self, reason: Reason) {
        for lease in self.lock().values() {
            lease.trigger.cancel(reason);
        }
    }
}

#[cfg(test)]
mod tests;
