//! The leases that this process holds, from the claim to the acknowledged outcome.
//!
//! Shared between the dispatcher and the heartbeat thread. A lease that was not extended for its
//! length, by this machine's monotonic clock from before the call, counts as lost: another worker
//! may have it, whatever the network says later.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cancellation::{Reason, Trigger};
use crate::id::{JobId, Token};
use crate::job::Beat;

struct Lease {
    token: Token,
    trigger: Trigger,
    valid_until: Instant,
    times_out_at: Option<Instant>,
}

#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<JobId, Lease>>);

impl Held {
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Lease>> {
        // No code panics under the lock; the map is whole even if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim that was sent at `sent`. An older lease on the same job is lost by that.
    pub(crate) fn insert(
        &self,
        (job_id, token): (JobId, Token),
        trigger: Trigger,
        sent: Instant,
        lease: Duration,
        timeout: Option<Duration>,
    ) {
        let lease = Lease {
            token,
            trigger,
            valid_until: sent + lease,
            times_out_at: timeout.and_then(|timeout| sent.checked_add(timeout)),
        };
        if let Some(older) = self.lock().insert(job_id, lease) {
            older.trigger.fire(Reason::LeaseLost);
        }
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

    pub(crate) fn snapshot(&self) -> Vec<(JobId, Token)> {
        self.lock()
            .iter()
            .map(|(id, lease)| (*id, lease.token))
            .collect()
    }

    pub(crate) fn earliest_end(&self) -> Option<Instant> {
        self.lock().values().map(|lease| lease.valid_until).min()
    }

    /// What the server said to a heartbeat that was sent at `sent`.
    pub(crate) fn note(&self, beats: &[Beat], sent: Instant, length: Duration) {
        let mut leases = self.lock();
        for beat in beats {
            let Some(lease) = leases.get_mut(&beat.job_id) else {
                continue;
            };
            if !beat.held {
                lease.trigger.fire(Reason::LeaseLost);
                continue;
            }
            lease.valid_until = sent + length;
            if beat.cancel_requested {
                let late = lease.times_out_at.is_some_and(|at| Instant::now() >= at);
                lease.trigger.fire(if late {
                    Reason::Timeout
                } else {
                    Reason::Cancelled
                });
            }
        }
    }

    /// Fires for every lease that nobody extended in time, and stops extending it.
    pub(crate) fn expire(&self, now: Instant) {
        self.lock().retain(|_, lease| {
            let alive = lease.valid_until > now;
            if !alive {
                lease.trigger.fire(Reason::LeaseLost);
            }
            alive
        });
    }

    pub(crate) fn fire_all(&self, reason: Reason) {
        for lease in self.lock().values() {
            lease.trigger.fire(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cancellation::{Cancellation, cancellation};
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn one(timeout: Option<Duration>, sent: Instant) -> (Held, Token, Cancellation) {
        let held = Held::default();
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
        let now = Instant::now();
        let (held, _, cancellation) = one(None, now);
        held.expire(now + LEASE / 2);
        assert_eq!(cancellation.reason(), None);
        held.expire(now + LEASE);
        assert_eq!(cancellation.reason(), Some(Reason::LeaseLost));
    }

    #[test]
    fn a_cancel_request_after_the_timeout_is_a_timeout() {
        let now = Instant::now();
        let (held, _, late) = one(Some(Duration::ZERO), now);
        held.note(&beat(true, true), now, LEASE);
        assert_eq!(late.reason(), Some(Reason::Timeout));
        let (held, _, early) = one(Some(LEASE), now);
        held.note(&beat(true, true), now, LEASE);
        assert_eq!(early.reason(), Some(Reason::Cancelled));
    }

    #[test]
    fn a_stale_token_removes_nothing() {
        let (held, token, _cancellation) = one(None, Instant::now());
        held.remove(JobId(1), Token(uuid::Uuid::from_u128(8)));
        assert_eq!(held.snapshot(), vec![(JobId(1), token)]);
        held.remove(JobId(1), token);
        assert!(held.snapshot().is_empty());
    }
}
