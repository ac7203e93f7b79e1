//! Checks whether heartbeats are answered, and lets the worker react if they are not.
//!
//! A worker without an answer for half a lease claims nothing, as it could not keep the jobs. Held
//! leases are extended over the claim connection, which also reports begun jobs, so that a lost
//! begun job uses up its attempt.

use std::time::Duration;

use super::held_leases::HeldLeases;
use crate::clock::Moment;

pub(crate) struct Pulse {
    lease: Duration,
    is_lost: bool,
    /// When to extend the leases next.
    extend_at: Option<Moment>,
}

/// A change found by a check of the heartbeats.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    Lost,
    Found,
}

impl Pulse {
    pub(crate) fn new(lease: Duration) -> Self {
        Pulse {
            lease,
            is_lost: false,
            extend_at: None,
        }
    }

    /// Returns how long a worker continues to claim without an answer.
    pub(crate) fn limit(&self) -> Duration {
        self.lease / 2
    }

    /// Returns whether the last check found heartbeats unanswered.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Checks whether heartbeats are answered.
    pub(crate) fn look(&mut self, held: &HeldLeases, now: Moment) -> Option<Change> {
        let until = held.heard_until(self.limit());
        let is_lost = until.is_some_and(|until| until <= now);
        let was_lost = std::mem::replace(&mut self.is_lost, is_lost);
        match (was_lost, is_lost) {
            (false, true) => Some(Change::Lost),
            (true, false) => {
                self.extend_at = None;
                Some(Change::Found)
            }
            _ => None,
        }
    }

    /// Returns whether to extend the leases over the claim connection now, and sets when to do it
    /// next.
    pub(crate) fn extends(&mut self, held: &HeldLeases, now: Moment) -> bool {
        let is_due = self.extend_at.is_none_or(|at| at <= now);
        let extends = self.is_lost && is_due && !held.is_empty();
        if extends {
            self.extend_at = Some(now + self.lease / 3);
        }
        extends
    }

    /// Returns the time until the next check; `None` while no lease is held.
    pub(crate) fn next(&self, held: &HeldLeases, now: Moment) -> Option<Duration> {
        if held.is_empty() {
            return None;
        }
        let at = match self.is_lost {
            true => self.extend_at,
            false => held.heard_until(self.limit()),
        };
        at.map(|at| at.after(now).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cancellation::cancellation;
    use super::*;
    use crate::id::{JobId, Token};

    #[test]
    fn without_an_answer_for_half_a_lease_what_is_held_is_extended_three_times_a_lease() {
        let lease = Duration::from_secs(30);
        let (held, mut pulse) = (HeldLeases::default(), Pulse::new(lease));
        let now = Moment::now();
        assert_eq!(pulse.look(&held, now + lease), None, "no heart is expected");
        held.beat();
        assert_eq!(pulse.look(&held, now), None);
        let later = Moment::now() + lease / 2;
        assert_eq!(pulse.look(&held, later), Some(Change::Lost));
        assert_eq!(pulse.look(&held, later), None, "once");
        assert!(pulse.is_lost() && !pulse.extends(&held, later));
        let (trigger, _cancellation) = cancellation();
        let key = (JobId(1), Token(uuid::Uuid::from_u128(7)));
        held.insert(key, trigger, later, lease, None);
        assert!(pulse.extends(&held, later) && !pulse.extends(&held, later));
        assert_eq!(pulse.next(&held, later), Some(lease / 3));
        assert!(pulse.extends(&held, later + lease / 3));
        held.beat();
        let now = Moment::now();
        assert_eq!(pulse.look(&held, now), Some(Change::Found));
        assert!(!pulse.is_lost() && !pulse.extends(&held, now));
    }
}
