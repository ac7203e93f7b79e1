//! The time of the next claim: with outcomes, at a notification, or when an empty queue is polled
//! again.

use std::time::{Duration, Instant};

/// Polling slows down after this long without a job.
const LONG_IDLE: Duration = Duration::from_secs(5);
/// The maximum number of poll intervals between polls if notifications are not relied on.
const MOST_INTERVALS: u32 = 5;
/// The minimum and maximum number if they are.
const INTERVALS_WHEN_NOTIFIED: (u32, u32) = (5, 25);
/// The maximum number of notifications required to rely on them again after they failed.
const MOST_NEEDED: u32 = 16;
/// The maximum wait after a notification is a random part of this, doubled up to
/// `EMPTY_CLAIM_DOUBLINGS` times.
const EMPTY_CLAIM_DELAY: Duration = Duration::from_millis(1);
const EMPTY_CLAIM_DOUBLINGS: u32 = 6;

/// A notification this soon after a claim that returned jobs may be about those.
const OWN_NOTICE: Duration = Duration::from_millis(10);

/// How long to wait, after a claim that returned fewer jobs than requested, for an outcome to send
/// with the next claim. A handler that ends sooner saves an idle worker every second claim.
const PARTIAL_DELAY: Duration = Duration::from_millis(10);

/// Whether more jobs may be waiting than a claim returned.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum More {
    #[default]
    No,
    /// The claim returned some jobs, but fewer than requested. A claim may return fewer jobs than
    /// are waiting.
    Perhaps,
    Likely,
}

impl More {
    /// Returns the state after a claim that requested `jobs` jobs and returned `got`.
    pub(crate) fn after(jobs: usize, got: usize) -> Self {
        match got {
            0 => More::No,
            got if got < jobs => More::Perhaps,
            _ => More::Likely,
        }
    }
}

pub(crate) struct Polling {
    poll_interval: Duration,
    idle_since: Instant,
    intervals: u32,
    /// When to claim without a notification.
    poll_at: Instant,
    /// When to claim because of a notification or a new connection.
    wakeup: Option<Instant>,
    /// The last claim returned a job, so the next one is not a poll.
    more: bool,
    /// The cause of the last claim.
    cause: Cause,
    /// The number of notifications on this connection since one was last found missing.
    notifications: u32,
    /// The number of notifications required to rely on them.
    needed: u32,
    /// The number of consecutive claims that followed a notification and returned nothing.
    vain_claims: u32,
}

/// The cause of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// Outcomes are reported anyway, or the last claim left jobs.
    Continuing,
    Wakeup,
    /// The poll interval has passed.
    Poll,
}

impl Polling {
    pub(crate) fn new(poll_interval: Duration, now: Instant) -> Self {
        Polling {
            poll_interval,
            idle_since: now,
            intervals: 1,
            poll_at: now,
            wakeup: None,
            more: true,
            cause: Cause::Continuing,
            notifications: 0,
            needed: 1,
            vain_claims: 0,
        }
    }

    pub(crate) fn next_claim(&self) -> Instant {
        self.wakeup.map_or(self.poll_at, |at| at.min(self.poll_at))
    }

    /// Records a new connection. Notifications of the old one prove nothing about the new one.
    pub(crate) fn connected(&mut self) {
        self.notifications = 0;
        self.intervals = self.intervals.min(MOST_INTERVALS);
    }

    /// Records a notification. If one job wakes many workers, all claims but one are in vain; those
    /// workers delay their next claim by a random time.
    pub(crate) fn notified(&mut self, now: Instant) {
        self.notifications = self.notifications.saturating_add(1);
        let delay = match self.vain_claims {
            0 => Duration::ZERO,
            vain => (EMPTY_CLAIM_DELAY * (1 << vain.min(EMPTY_CLAIM_DOUBLINGS)))
                .mul_f64(rand::random::<f64>()),
        };
        self.wake(now + delay);
    }

    /// Records a reason to claim at `at`. Any claim sent before then satisfies it.
    pub(crate) fn wake(&mut self, at: Instant) {
        self.wakeup = Some(self.wakeup.map_or(at, |before| before.min(at)));
    }

    /// Returns whether notifications arrive on this connection, and no poll found work without one.
    fn relies_on_notifications(&self) -> bool {
        self.notifications >= self.needed
    }

    /// Records that a claim is sent, together with outcomes or alone.
    pub(crate) fn claim_sent(&mut self, with_outcomes: bool) {
        let woken = self.wakeup.take().is_some();
        self.cause = if woken {
            Cause::Wakeup
        } else if with_outcomes || self.more {
            Cause::Continuing
        } else {
            Cause::Poll
        };
    }

    /// Records a claim that returned `got` jobs, and whether more may be waiting.
    pub(crate) fn claimed(&mut self, more: More, got: usize, now: Instant) {
        self.more = more != More::No;
        if got > 0 {
            // Only a poll found this work: a notification is late, or none arrive.
            if self.relies_on_notifications() && self.cause == Cause::Poll && self.wakeup.is_none()
            {
                self.notifications = 0;
                self.needed = (self.needed * 2).min(MOST_NEEDED);
            }
            self.idle_since = now;
            self.vain_claims = 0;
        } else if self.cause == Cause::Wakeup && now.duration_since(self.idle_since) > OWN_NOTICE {
            self.vain_claims = self.vain_claims.saturating_add(1);
        }
        let (least, most) = INTERVALS_WHEN_NOTIFIED;
        self.intervals = match (self.relies_on_notifications(), got) {
            (true, 0) => (self.intervals * 2).clamp(least, most),
            (true, _) => least,
            (false, 0) if now.duration_since(self.idle_since) > LONG_IDLE => {
                (self.intervals + 1).min(MOST_INTERVALS)
            }
            (false, 0) => self.intervals.min(MOST_INTERVALS),
            (false, _) => 1,
        };
        self.poll_at = match more {
            More::Likely => now,
            More::Perhaps => now + PARTIAL_DELAY,
            // A factor between 0.9 and 1.1 spreads the polls of workers that were started together.
            More::No => {
                let factor = 0.9 + 0.2 * rand::random::<f64>();
                now + (self.poll_interval * self.intervals).mul_f64(factor)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(200);

    #[test]
    fn an_idle_worker_polls_slower_and_a_job_wakes_it() {
        let start = Instant::now();
        let mut polling = Polling::new(POLL, start);
        polling.claimed(More::No, 0, start);
        assert!(polling.next_claim() <= start + POLL.mul_f64(1.1));
        let mut later = start + LONG_IDLE;
        for _ in 0..10 {
            later += Duration::from_millis(1);
            poll(&mut polling, 0, later);
        }
        assert!(polling.next_claim() >= later + POLL.mul_f64(4.5));
        poll(&mut polling, 1, later);
        assert_eq!(polling.next_claim(), later);
    }

    #[test]
    fn a_claim_that_returned_fewer_jobs_is_followed_by_one_with_their_outcomes_or_soon() {
        let now = Instant::now();
        let mut polling = Polling::new(POLL, now);
        polling.claim_sent(false);
        polling.claimed(More::after(4, 4), 4, now);
        assert_eq!(polling.next_claim(), now);
        polling.claim_sent(false);
        polling.claimed(More::after(4, 1), 1, now);
        assert_eq!(polling.next_claim(), now + PARTIAL_DELAY);
        polling.claim_sent(false);
        assert_eq!(polling.cause, Cause::Continuing, "no poll");
    }

    /// Sends a claim of up to 1 job, because the poll interval has passed.
    fn poll(polling: &mut Polling, got: usize, now: Instant) {
        polling.more = false;
        polling.claim_sent(false);
        assert_eq!(polling.cause, Cause::Poll);
        polling.claimed(More::after(1, got), got, now);
    }

    /// Handles a notification and a claim for it that returns nothing.
    fn hear(polling: &mut Polling, now: Instant) {
        polling.notified(now);
        polling.claim_sent(false);
        polling.claimed(More::No, 0, now);
    }

    /// Polls an empty queue until the interval no longer grows, and returns it.
    fn settled_interval(polling: &mut Polling, now: Instant) -> Duration {
        let later = now + LONG_IDLE + POLL;
        for _ in 0..10 {
            poll(polling, 0, later);
        }
        polling.next_claim().duration_since(later)
    }

    #[test]
    fn with_notifications_an_idle_worker_polls_every_five_seconds() {
        let now = Instant::now();
        let mut polling = Polling::new(POLL, now);
        assert!(settled_interval(&mut polling, now) < POLL * 6);
        polling.notified(now);
        polling.claim_sent(false);
        polling.claimed(More::No, 1, now);
        let first = polling.next_claim().duration_since(now);
        assert!(first > POLL * 4 && first < POLL * 6, "{first:?}");
        assert!(settled_interval(&mut polling, now) > POLL * 22);
        polling.connected();
        assert!(settled_interval(&mut polling, now) < POLL * 6);
    }

    #[test]
    fn work_that_only_a_poll_found_ends_the_reliance_on_notifications() {
        let now = Instant::now();
        let mut polling = Polling::new(POLL, now);
        hear(&mut polling, now);
        assert!(settled_interval(&mut polling, now) > POLL * 22);
        poll(&mut polling, 1, now);
        assert!(settled_interval(&mut polling, now) < POLL * 6);
        hear(&mut polling, now);
        assert!(
            !polling.relies_on_notifications(),
            "one is not enough any more"
        );
        hear(&mut polling, now);
        assert!(polling.relies_on_notifications());
    }

    #[test]
    fn a_notification_during_a_claim_asks_for_another_one() {
        let now = Instant::now();
        let mut polling = Polling::new(POLL, now);
        polling.claim_sent(false);
        polling.notified(now);
        polling.claimed(More::No, 0, now);
        assert_eq!(polling.next_claim(), now);
        polling.claim_sent(false);
        polling.claimed(More::No, 0, now);
        assert!(polling.next_claim() > now);
    }

    #[test]
    fn notifications_in_vain_are_answered_a_little_later() {
        let start = Instant::now();
        let mut polling = Polling::new(POLL, start);
        let now = start + LONG_IDLE;
        let mut later = 0;
        for _ in 0..100 {
            polling.notified(now);
            assert!(polling.next_claim() <= now + Duration::from_millis(64));
            later += u32::from(polling.next_claim() > now);
            polling.claim_sent(false);
            polling.claimed(More::No, 0, now);
        }
        assert!(later > 90, "{later}");
        polling.claim_sent(false);
        polling.claimed(More::No, 1, now);
        hear(&mut polling, now);
        polling.notified(now);
        assert_eq!(polling.next_claim(), now, "the first was about the job");
    }
}
