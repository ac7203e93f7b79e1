//! The deadlines of a stop.
//!
//! A stop asks handlers to end after the grace period, drops them a moment later, waits until the
//! dropped ones are really gone (which also ends what they started), and finally gives up on a
//! server that does not answer.

use std::time::{Duration, Instant};

/// The longest time that can be set, ten years: any clock can add it.
pub(super) const LONGEST: Duration = Duration::from_secs(3650 * 86_400);
/// The time from asking handlers to stop until dropping them.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// The time from dropping handlers until abandoning those that block their thread.
const DROP_PATIENCE: Duration = Duration::from_secs(1);
/// The time from then, or from the end of the last handler, until giving up on the server.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Deadlines {
    /// Handlers are asked to stop.
    pub(crate) ask: Instant,
    /// Handlers are dropped.
    pub(crate) drop: Instant,
    /// Handlers that could not be dropped are abandoned; their jobs are released all the same.
    pub(crate) leave: Instant,
    /// Outcomes that are not reported by now stay unreported.
    pub(crate) give_up: Instant,
    ended: bool,
}

impl Deadlines {
    /// Returns the deadlines of a stop that begins now. Without a grace period handlers are dropped
    /// at once.
    pub(crate) fn new(now: Instant, grace: Duration) -> Self {
        let patience = if grace.is_zero() {
            Duration::ZERO
        } else {
            STOP_PATIENCE
        };
        let ask = now + grace;
        let drop = ask + patience;
        let leave = drop + DROP_PATIENCE;
        Deadlines {
            ask,
            drop,
            leave,
            give_up: leave + REPORT_PATIENCE,
            ended: false,
        }
    }

    /// Notes that no handler runs any more: the rest of the grace period is not spent on a lost
    /// server.
    pub(crate) fn handlers_ended(&mut self, now: Instant) {
        if !self.ended {
            self.ended = true;
            self.give_up = self.give_up.min(now + REPORT_PATIENCE);
        }
    }

    /// Returns the next deadline.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        [self.ask, self.drop, self.leave, self.give_up]
            .into_iter()
            .filter(|moment| *moment > now)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_asks_then_drops_then_leaves_then_gives_up() {
        let now = Instant::now();
        let stop = Deadlines::new(now, Duration::from_secs(5));
        let mut moments = vec![now];
        while let Some(next) = stop.next(moments[moments.len() - 1]) {
            moments.push(next);
        }
        assert_eq!(
            moments,
            [now, stop.ask, stop.drop, stop.leave, stop.give_up]
        );
    }

    #[test]
    fn without_a_grace_handlers_are_dropped_at_once() {
        let now = Instant::now();
        let stop = Deadlines::new(now, Duration::ZERO);
        assert_eq!((stop.ask, stop.drop), (now, now));
        assert!(stop.leave > now);
    }

    #[test]
    fn the_server_gets_no_grace_of_handlers_that_have_ended() {
        let now = Instant::now();
        let mut stop = Deadlines::new(now, Duration::from_secs(600));
        stop.handlers_ended(now);
        assert_eq!(stop.give_up, now + REPORT_PATIENCE);
        stop.handlers_ended(now + REPORT_PATIENCE);
        assert_eq!(stop.give_up, now + REPORT_PATIENCE);
    }
}
