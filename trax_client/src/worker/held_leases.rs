//! The leases that this process holds, from the claim to the acknowledged outcome.
//!
//! Shared by the dispatcher and the heartbeat thread. A lease that was not extended for its length,
//! measured from before the call by a clock that runs while this machine sleeps (`clock`), counts
//! as lost: another worker may hold the job, whatever answer arrives later.

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

/// The server counts from the report of a begin, which comes a moment after the begin.
const REPORT_DELAY: Duration = Duration::from_millis(250);

struct Lease {
    token: Token,
    trigger: Trigger,
    valid_until: Moment,
    timeout: Option<Duration>,
    /// When a handler that has begun is asked to stop, until it was.
    times_out_at: Option<Moment>,
    begin: Begin,
    /// When a notification said that it may be asked to stop, until a heartbeat has asked.
    asked_at: Option<Moment>,
    /// The handler's latest report, not yet sent to the server.
    progress: Option<Json>,
}

impl Lease {
    fn is_unreported(&self, until: Moment) -> bool {
        matches!(self.begin, Begin::Unreported(at) if at <= until) || self.asked_at.is_some()
    }
}

/// Whether a handler has the job.
#[derive(Clone, Copy)]
enum Begin {
    No,
    /// Since then, and the server does not know.
    Unreported(Moment),
    Reported,
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
    /// Where the jobs are from; none in a test that runs one in place.
    database: Option<Address>,
}

impl HeldLeases {
    /// Returns none yet, of jobs from this database.
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
        // No code panics under the lock; the map is whole even if it did.
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
            older.trigger.cancel(Reason::LeaseLost);
        }
        self.inserted.notify_one();
    }

    pub(crate) fn remove(&self, job_id: JobId, token: Token) {
        let mut leases = self.lock();
        if leases
            .get(&job_id)
            .is_some_and(|lease| lease.token == token)
        {
            leases.remove(&job_id);
        }
    }

    /// Marks the job as begun, and returns whether its lease is still held.
    pub(crate) fn begin(&self, job_id: JobId, token: Token, now: Moment) -> bool {
        let mut leases = self.lock();
        let lease = leases.get_mut(&job_id).filter(|lease| lease.token == token);
        let Some(lease) = lease.filter(|lease| lease.valid_until > now) else {
            return false;
        };
        // Under the lock: a call that was sent after it knows of the begin.
        let begun = Moment::now();
        lease.begin = Begin::Unreported(begun);
        lease.times_out_at = lease.timeout.and_then(|timeout| {
            let late = timeout.checked_add(REPORT_DELAY)?;
            begun.checked_add(late)
        });
        self.begun.notify_one();
        true
    }

    /// Returns those of `jobs` that no handler has begun.
    pub(crate) fn ahead(&self, jobs: &[(JobId, Token)]) -> Vec<JobId> {
        let leases = self.lock();
        let waits = |&&(job_id, token): &&(JobId, Token)| {
            leases
                .get(&job_id)
                .is_some_and(|lease| lease.token == token && matches!(lease.begin, Begin::No))
        };
        jobs.iter()
            .filter(waits)
            .map(|&(job_id, _)| job_id)
            .collect()
    }

    /// Hears that jobs are asked to stop, as `trax_cancel` names them: "7,8"; empty is any.
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

    /// Returns when a handler has begun since the last call, or when a job may be asked to stop.
    /// Cancel safe.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Returns the leases whose handlers have begun by `until` without the server's knowledge, and
    /// those that may be asked to stop.
    pub(crate) fn unreported(&self, until: Moment) -> Vec<(JobId, Token)> {
        let leases = self.lock();
        leases
            .iter()
            .filter(|(_, lease)| lease.is_unreported(until))
            .map(|(id, lease)| (*id, lease.token))
            .collect()
    }

    /// Returns whether the server does not know of a begin, or must be asked about a stop.
    pub(crate) fn is_any_unreported(&self) -> bool {
        let now = Moment::now();
        self.lock().values().any(|lease| lease.is_unreported(now))
    }

    /// Returns when a lease is held.
    pub(crate) async fn any_held(&self) {
        while self.lock().is_empty() {
            self.inserted.notified().await;
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<(JobId, Token)> {
        self.lock()
            .iter()
            .map(|(id, lease)| (*id, lease.token))
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns when the first lease or timeout ends.
    pub(crate) fn earliest_end(&self) -> Option<Moment> {
        let leases = self.lock();
        let ends = leases.values().map(|lease| {
            let timeout = lease.times_out_at.unwrap_or(lease.valid_until);
            lease.valid_until.min(timeout)
        });
        ends.min()
    }

    /// Notes that a heartbeat was answered, or that there is a new connection to wait for one.
    pub(crate) fn beat(&self) {
        *self.beaten_at() = Some(Moment::now());
        self.beaten.notify_one();
    }

    /// Returns when a heartbeat was answered since the last call. Safe to drop and call again.
    pub(crate) async fn beaten(&self) {
        self.beaten.notified().await;
    }

    /// Returns when the time is over in which a heartbeat must be answered.
    pub(crate) fn heard_until(&self, limit: Duration) -> Option<Moment> {
        self.beaten_at().map(|at| at + limit)
    }

    fn beaten_at(&self) -> MutexGuard<'_, Option<Moment>> {
        self.beaten_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the server's answers to a heartbeat that was sent at `sent`, in the order of
    /// `asked`. A job may have been claimed again meanwhile: the answer is not about its new lease.
    pub(crate) fn record_beats(
        &self,
        asked: &[(JobId, Token)],
        beats: &[Beat],
        sent: Moment,
        length: Duration,
    ) {
        let mut leases = self.lock();
        for ((job_id, token), beat) in asked.iter().zip(beats) {
            let lease = leases.get_mut(job_id).filter(|lease| lease.token == *token);
            let Some(lease) = lease else { continue };
            if !beat.held {
                lease.trigger.cancel(Reason::LeaseLost);
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

    /// Cancels every lease that was not extended in time, and stops extending it; asks those that
    /// run longer than their timeout to stop.
    pub(crate) fn expire(&self, now: Moment) {
        self.lock().retain(|_, lease| {
            let alive = lease.valid_until > now;
            if !alive {
                lease.trigger.cancel(Reason::LeaseLost);
            } else if lease.times_out_at.is_some_and(|at| at <= now) {
                lease.times_out_at = None;
                lease.trigger.cancel(Reason::Timeout);
            }
            alive
        });
    }

    /// Keeps a handler's progress report; the latest one of a job counts.
    pub(crate) fn report(&self, job_id: JobId, token: Token, progress: Json) {
        let mut leases = self.lock();
        let lease = leases.get_mut(&job_id).filter(|lease| lease.token == token);
        if let Some(lease) = lease {
            lease.progress = Some(progress);
            self.reported.notify_one();
        }
    }

    /// Returns when something was reported since the last call. Safe to drop and call again.
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
            if let Some(lease) = leases.get_mut(&job_id).filter(|l| l.token == token) {
                lease.progress.get_or_insert(progress);
            }
        }
    }

    /// Notes that the server reported this lease as lost.
    pub(crate) fn lost(&self, job_id: JobId, token: Token) {
        let leases = self.lock();
        if let Some(lease) = leases.get(&job_id).filter(|lease| lease.token == token) {
            lease.trigger.cancel(Reason::LeaseLost);
        }
    }

    pub(crate) fn cancel_all(&self, reason: Reason) {
        for lease in self.lock().values() {
            lease.trigger.cancel(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cancellation::{Cancellation, cancellation};
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn one(timeout: Option<Duration>, sent: Moment) -> (HeldLeases, Token, Cancellation) {
        let held = HeldLeases::default();
        let token = Token(uuid::Uuid::from_u128(7));
        let (trigger, cancellation) = cancellation();
        held.insert((JobId(1), token), trigger, sent, LEASE, timeout);
        (held, token, cancellation)
    }

    fn beat(held: bool, cancel_requested: bool) -> Vec<Beat> {
        vec![Beat {
            job_id: JobId(1),
            held,
            cancel_requested,
            lease_expires_at: None,
        }]
    }

    #[test]
    fn a_lease_without_contact_for_its_length_is_lost() {
        let now = Moment::now();
        let (held, _, cancellation) = one(None, now);
        held.expire(now + LEASE / 2);
        assert_eq!(cancellation.reason(), None);
        held.expire(now + LEASE);
        assert_eq!(cancellation.reason(), Some(Reason::LeaseLost));
    }

    #[test]
    fn a_job_whose_lease_ran_out_in_the_sleep_of_the_machine_is_not_begun() {
        let now = Moment::now();
        let (held, token, _cancellation) = one(None, now);
        assert!(!held.begin(JobId(1), token, now + LEASE));
        held.expire(now + LEASE);
        assert!(!held.begin(JobId(1), token, now), "it was given up");
    }

    #[test]
    fn a_cancel_request_after_the_timeout_is_a_timeout() {
        let now = Moment::now();
        let (held, token, late) = one(Some(Duration::ZERO), now);
        assert!(held.begin(JobId(1), token, now));
        held.record_beats(&[(JobId(1), token)], &beat(true, true), now, LEASE);
        assert_eq!(late.reason(), Some(Reason::Timeout));
        let (held, token, early) = one(Some(LEASE), now);
        held.record_beats(&[(JobId(1), token)], &beat(true, true), now, LEASE);
        assert_eq!(early.reason(), Some(Reason::Cancelled));
    }

    #[test]
    fn a_timeout_counts_from_the_begin_and_asks_the_handler_once() {
        let now = Moment::now();
        let timeout = Duration::from_secs(5);
        let (held, token, cancellation) = one(Some(timeout), now);
        assert_eq!(held.earliest_end(), Some(now + LEASE), "it waits");
        held.expire(now + timeout * 2);
        assert_eq!(cancellation.reason(), None);
        assert!(held.begin(JobId(1), token, Moment::now()));
        let end = held.earliest_end().expect("it is held");
        assert!(end < now + timeout + Duration::from_secs(1));
        held.expire(end);
        assert_eq!(cancellation.reason(), Some(Reason::Timeout));
        assert_eq!(held.earliest_end(), Some(now + LEASE), "it is still held");
    }

    #[test]
    fn a_lease_that_ran_out_with_the_timeout_is_lost() {
        let now = Moment::now();
        let (held, token, cancellation) = one(Some(Duration::from_secs(5)), now);
        assert!(held.begin(JobId(1), token, now));
        held.expire(now + LEASE * 2);
        assert_eq!(cancellation.reason(), Some(Reason::LeaseLost));
    }

    #[test]
    fn what_is_said_of_a_lost_lease_is_not_said_of_the_next_one_of_its_job() {
        let now = Moment::now();
        let (held, _, next) = one(None, now);
        let lost = [(JobId(1), Token(uuid::Uuid::from_u128(8)))];
        held.record_beats(&lost, &beat(false, false), now, LEASE);
        assert_eq!(next.reason(), None);
        held.record_beats(&lost, &beat(true, false), now + LEASE, LEASE);
        assert_eq!(held.earliest_end(), Some(now + LEASE));
    }

    #[test]
    fn of_many_reports_the_last_is_taken_once_and_a_stale_one_never() {
        let json = |value: i32| Json::from(serde_json::Value::from(value));
        let (held, token, _cancellation) = one(None, Moment::now());
        held.report(JobId(1), token, json(1));
        held.report(JobId(1), token, json(2));
        held.report(JobId(1), Token(uuid::Uuid::from_u128(8)), json(3));
        held.report(JobId(9), token, json(4));
        assert_eq!(held.take_reports(), [(JobId(1), token, json(2))]);
        assert_eq!(held.take_reports(), []);

        let old = |value: i32| vec![(JobId(1), token, json(value))];
        held.restore_reports(old(2));
        assert_eq!(held.take_reports(), old(2), "it was not sent");
        held.report(JobId(1), token, json(5));
        held.restore_reports(old(2));
        assert_eq!(held.take_reports(), old(5), "the newer one counts");
    }

    #[test]
    fn what_no_handler_has_begun_is_ahead() {
        let (held, token, _cancellation) = one(None, Moment::now());
        let stale = Token(uuid::Uuid::from_u128(8));
        assert!(!held.begin(JobId(1), stale, Moment::now()));
        assert_eq!(held.ahead(&held.snapshot()), [JobId(1)]);
        assert_eq!(held.ahead(&[(JobId(1), stale)]), []);
        assert!(held.begin(JobId(1), token, Moment::now()));
        assert_eq!(held.ahead(&held.snapshot()), []);
    }

    #[test]
    fn a_begin_is_unreported_until_a_call_that_was_sent_after_it_is_answered() {
        let before = Moment::now();
        let (held, token, _cancellation) = one(None, before);
        let leases = held.snapshot();
        assert_eq!(held.unreported(Moment::now()), []);
        assert!(held.begin(JobId(1), token, Moment::now()));
        let after = Moment::now() + LEASE;
        assert_eq!(held.unreported(Moment::now()), leases);
        assert_eq!(held.unreported(before), [], "not by then");
        held.record_beats(&leases, &beat(true, false), before, LEASE);
        assert_eq!(held.unreported(Moment::now()), leases);
        assert!(held.is_any_unreported());
        held.record_beats(&leases, &beat(true, false), after, LEASE);
        assert_eq!(held.unreported(Moment::now()), []);
        assert!(!held.is_any_unreported());
    }

    #[test]
    fn a_job_that_may_be_asked_to_stop_is_asked_about_until_a_later_call_is_answered() {
        let before = Moment::now();
        let (held, token, cancellation) = one(None, before);
        let lease = [(JobId(1), token)];
        held.hear_cancels("7,10");
        assert_eq!(held.unreported(Moment::now()), []);
        held.hear_cancels("7,1");
        assert_eq!(held.unreported(Moment::now()), lease);
        held.record_beats(&lease, &beat(true, false), before, LEASE);
        assert_eq!(held.unreported(Moment::now()), lease, "it was sent before");
        held.record_beats(&lease, &beat(true, true), before + LEASE, LEASE);
        assert_eq!(held.unreported(Moment::now()), []);
        assert_eq!(cancellation.reason(), Some(Reason::Cancelled));
        held.hear_cancels("");
        assert_eq!(held.unreported(Moment::now()), lease, "any");
    }

    #[test]
    fn a_stale_token_removes_nothing() {
        let (held, token, _cancellation) = one(None, Moment::now());
        held.remove(JobId(1), Token(uuid::Uuid::from_u128(8)));
        assert_eq!(held.snapshot(), vec![(JobId(1), token)]);
        held.remove(JobId(1), token);
        assert!(held.snapshot().is_empty());
    }
}
