//! The deadlines of a stop.
//!
//! When the grace period is over, a stop asks handlers to end, drops them a moment later, waits
//! until the dropped ones are gone (which also ends the work they started), and finally gives up on
//! a server that does not answer.

use std::time::{Duration, Instant};

/// The longest duration that can be set: ten years. Adding it overflows no clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(3650 * 86_400);
/// The time between asking handlers to stop and dropping them.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// The time between dropping handlers and abandoning those that block their thread.
const DROP_PATIENCE: Duration = Duration::from_secs(1);
/// The time after that, or after the end of the last handler, until the server is given up on.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Deadlines {
    /// When handlers are asked to stop.
    pub(crate) ask: Instant,
    /// When handlers are dropped.
    pub(crate) drop: Instant,
    /// When handlers that could not be dropped are abandoned. Their jobs are released.
    pub(crate) leave: Instant,
    /// When outcomes that are not yet reported are discarded.
    pub(crate) give_up: Instant,
    ended: bool,
}

impl Deadlines {
    /// Returns the deadlines of a stop that begins now. Without a grace period, handlers are
    /// dropped at once.
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

    /// Records that no handler runs any more, so that the rest of the grace period is not spent on
    /// an unreachable server.
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
