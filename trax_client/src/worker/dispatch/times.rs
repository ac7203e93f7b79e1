//! What the main loop does when a time comes, and which time it waits for.

use std::time::{Duration, Instant};

use super::super::cancellation::Reason;
use super::super::deadline::Deadlines;
use super::super::outcome::Verdict;
use super::super::places::HUNGRY;
use super::super::summary::Stopped;
use super::{Dispatch, Started, Waiting};
use crate::clock::Moment;

/// A job that was fetched ahead is released when it has not started within this time.
const PREFETCH_PATIENCE: Duration = Duration::from_secs(2);

impl<S: Send + Sync + 'static> Dispatch<S> {
    /// Acts on what is due: deadlines of a stop, and jobs fetched ahead in vain.
    pub(super) fn on_time(&mut self) {
        let now = Instant::now();
        while self
            .waiting
            .front()
            .is_some_and(|w| w.since + PREFETCH_PATIENCE <= now)
        {
            if let Some(Waiting { claimed, .. }) = self.waiting.pop_front() {
                self.prefetch.in_vain();
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
            // They are waited for: what a handler started ends only when the handler does.
            self.running.abort_all();
        }
        if now >= leave && !self.started.is_empty() {
            // A handler that blocks its thread cannot be dropped; its job is released all the same.
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
            moments.push(now + HUNGRY / 2);
        }
        if self.exchange.is_idle() {
            let look = self.pulse.next(&self.held, Moment::now());
            moments.extend(look.map(|left| (now + left).max(self.paused_until)));
            // Whatever is in the outbox is sent then.
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
