//! Timed actions of the main loop, and the time to wait for.

use std::time::{Duration, Instant};

use super::super::cancellation::Reason;
use super::super::deadline::Deadlines;
use super::super::outcome::Verdict;
use super::super::places::WANTS_FOR;
use super::super::summary::Stopped;
use super::{Dispatch, Started, Waiting};
use crate::clock::Moment;

/// A job that was fetched ahead is released if it has not started within this time.
const PREFETCH_PATIENCE: Duration = Duration::from_secs(2);

impl<S: Send + Sync + 'static> Dispatch<S> {
    /// Performs due actions: deadlines of a stop, and the release of jobs fetched ahead in vain.
    pub(super) fn on_time(&mut self) {
        let now = Instant::now();
        while self
            .waiting
            .front()
            .is_some_and(|w| w.since + PREFETCH_PATIENCE <= now)
        {
            if let Some(Waiting { claimed, .. }) = self.waiting.pop_front() {
                self.prefetch.released_unstarted();
                self.end_attempt(&claimed, Verdict::Release(None));
            }
        }
        let Some(Deadlines {
            ask, drop, leave, ..
        }) = self.deadlines
        else {
            return;
        };
        if now >= ask && !self.running.is_empty() {
            self.summary.stopped = Stopped::Released;
            self.held.cancel_all(Reason::Shutdown);
        }
        if now >= drop {
            // They are still waited for: tasks that a handler started end only with the handler.
            self.running.abort_all();
        }
        if now >= leave && !self.started.is_empty() {
            // A handler that blocks its thread cannot be dropped. Its job is released nevertheless.
            self.running.detach_all();
            for (_, Started { attempt, .. }) in std::mem::take(&mut self.started) {
                self.end_attempt(&attempt, Verdict::Release(None));
            }
        }
    }

    pub(super) fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let mut moments = vec![now + self.health.round()];
        if let Some(deadlines) = &self.deadlines {
            moments.extend(deadlines.next(now));
        } else if self.exchange.is_idle()
            && !self.is_full()
            && !self.pulse.is_lost()
            && self.room(now) > 0
        {
            let claim = self.polling.next_claim().max(self.no_claim_until);
            moments.push(claim.max(self.paused_until));
        }
        if self.starved || !self.waiting.is_empty() && self.running.len() < self.setup.concurrency {
            moments.push(now + WANTS_FOR / 2);
        }
        if self.exchange.is_idle() {
            let look = self.pulse.next(&self.held, Moment::now());
            moments.extend(look.map(|left| (now + left).max(self.paused_until)));
            // The outbox is sent then.
            moments.extend(Some(self.paused_until).filter(|at| *at > now));
            let later = (!self.retries.is_empty()).then_some(self.retry_at.max(self.paused_until));
            moments.extend(later);
        }
        moments.extend(
            self.waiting
                .front()
                .map(|waiting| waiting.since + PREFETCH_PATIENCE),
        );
        moments.into_iter().min().unwrap_or(now)
    }
}
