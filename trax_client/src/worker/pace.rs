//! How eagerly to claim: how many jobs to hold, and when to poll an empty queue again.

use std::time::{Duration, Instant};

/// As many jobs are fetched ahead as handlers finish in this time, a few round trips.
const PREFETCH_TIME: Duration = Duration::from_millis(20);
/// After this long without a job polling slows down.
const LONG_IDLE: Duration = Duration::from_secs(5);
/// The most poll intervals between two polls when notifications are not relied on.
const MOST_INTERVALS: u32 = 5;
/// The least and the most when they are.
const INTERVALS_WHEN_NOTIFIED: (u32, u32) = (5, 25);
/// The most notifications that it takes to rely on them again after they failed.
const MOST_NEEDED: u32 = 16;
/// The longest wait after a notification is a random part of this, doubled that many times.
const VAIN_DELAY: Duration = Duration::from_millis(1);
const VAIN_DOUBLINGS: u32 = 6;

/// How long a claim that returned fewer jobs than requested waits for an outcome to go with the
/// next: a handler that is done sooner saves an idle worker every second claim.
const PARTIAL_DELAY: Duration = Duration::from_millis(10);

/// Whether more jobs may wait than a claim returned.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum More {
    #[default]
    No,
    /// It returned some, but fewer than requested: a claim may return fewer jobs than wait.
    Perhaps,
    Likely,
}

impl More {
    /// After a claim that requested `jobs` and returned `got`.
    pub(crate) fn after(jobs: usize, got: usize) -> Self {
        match got {
            0 => More::No,
            got if got < jobs => More::Perhaps,
            _ => More::Likely,
        }
    }
}

pub(crate) struct Pace {
    concurrency: usize,
    max_prefetch: usize,
    poll_interval: Duration,
    /// The moving average of what a handler takes; none before the first one ended.
    average: Option<Duration>,
    /// Jobs were fetched ahead in vain, and no handler has ended since.
    stalled: bool,
    idle_since: Instant,
    intervals: u32,
    /// When to claim without a notification.
    poll_at: Instant,
    /// When to claim because of a notification or a new connection.
    wakeup: Option<Instant>,
    /// The last claim returned a job: the next one is no poll.
    more: bool,
    /// What the last claim was sent for.
    cause: Cause,
    /// How many came on this connection since one was last found missing.
    notifications: u32,
    /// How many it takes to rely on notifications.
    needed: u32,
    /// How many claims in a row followed a notification and returned nothing.
    vain_claims: u32,
}

/// Why a claim is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// Outcomes are reported anyway, or the last claim left jobs.
    Continuing,
    Wakeup,
    /// The poll interval is over.
    Poll,
}

impl Pace {
    pub(crate) fn new(
        concurrency: usize,
        max_prefetch: usize,
        poll_interval: Duration,
        now: Instant,
    ) -> Self {
        Pace {
            concurrency,
            max_prefetch,
            poll_interval,
            average: None,
            stalled: false,
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

    /// Notes a new connection: the notifications of the old one say nothing about it.
    pub(crate) fn connected(&mut self) {
        self.notifications = 0;
        self.intervals = self.intervals.min(MOST_INTERVALS);
    }

    /// Notes that a notification came. When one job wakes many workers, all but one claim in vain;
    /// next time those claim a little later, and not all at once.
    pub(crate) fn notified(&mut self, now: Instant) {
        self.notifications = self.notifications.saturating_add(1);
        let delay = match self.vain_claims {
            0 => Duration::ZERO,
            vain => (VAIN_DELAY * (1 << vain.min(VAIN_DOUBLINGS))).mul_f64(rand::random::<f64>()),
        };
        self.wake(now + delay);
    }

    /// Notes a reason to claim at `at`; a claim that is sent before then will do as well.
    pub(crate) fn wake(&mut self, at: Instant) {
        self.wakeup = Some(self.wakeup.map_or(at, |before| before.min(at)));
    }

    /// Returns whether notifications arrive on this connection, and no poll found work without one.
    fn relies_on_notifications(&self) -> bool {
        self.notifications >= self.needed
    }

    /// Notes that a claim is being sent, together with outcomes or alone.
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

    /// Notes that a job that was fetched ahead goes back unstarted: do not fetch ahead again at
    /// once.
    pub(crate) fn prefetch_in_vain(&mut self) {
        self.stalled = true;
    }

    pub(crate) fn handler_ended(&mut self, took: Duration) {
        self.stalled = false;
        self.average = Some(match self.average {
            Some(average) => average.mul_f64(0.9) + took.mul_f64(0.1),
            None => took,
        });
    }

    /// Returns how many jobs may wait here besides those that run. Long jobs are not fetched ahead:
    /// another worker could start them.
    pub(crate) fn prefetch(&self) -> usize {
        match self.average {
            _ if self.stalled => 0,
            None => 0,
            Some(average) => {
                let finish = PREFETCH_TIME.as_secs_f64() / average.as_secs_f64().max(1e-6);
                ((finish * self.concurrency as f64) as usize).min(self.max_prefetch)
            }
        }
    }

    /// Returns how many jobs to claim, with this many running and waiting here.
    pub(crate) fn room(&self, running: usize, waiting: usize) -> usize {
        let prefetch = self.prefetch();
        if waiting > prefetch / 2 {
            return 0;
        }
        (self.concurrency + prefetch).saturating_sub(running + waiting)
    }

    /// Records a claim that returned `got` jobs, and whether more may wait.
    pub(crate) fn claimed(&mut self, more: More, got: usize, now: Instant) {
        self.more = more != More::No;
        if got > 0 {
            // Work that only a poll found: a notification is late, or they do not arrive.
            if self.relies_on_notifications() && self.cause == Cause::Poll && self.wakeup.is_none()
            {
                self.notifications = 0;
                self.needed = (self.needed * 2).min(MOST_NEEDED);
            }
            self.idle_since = now;
            self.vain_claims = 0;
        } else if self.cause == Cause::Wakeup {
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
            // Between 0.9 and 1.1 of the interval: a fleet started together drifts apart.
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
    fn never_more_in_hand_than_concurrency_and_prefetch() {
        let mut pace = Pace::new(4, 100, POLL, Instant::now());
        assert_eq!(pace.room(0, 0), 4);
        assert_eq!(pace.room(4, 0), 0);
        pace.handler_ended(Duration::from_micros(10));
        assert_eq!(pace.prefetch(), 100);
        assert_eq!(pace.room(4, 50), 50);
        assert_eq!(pace.room(4, 51), 0);
    }

    #[test]
    fn long_jobs_are_not_fetched_ahead() {
        let mut pace = Pace::new(4, 100, POLL, Instant::now());
        pace.handler_ended(Duration::from_secs(1));
        assert_eq!(pace.prefetch(), 0);
    }

    #[test]
    fn nothing_is_fetched_ahead_of_handlers_that_stand_still() {
        let mut pace = Pace::new(4, 100, POLL, Instant::now());
        pace.handler_ended(Duration::from_micros(10));
        pace.prefetch_in_vain();
        assert_eq!((pace.room(4, 0), pace.room(3, 0)), (0, 1));
        pace.handler_ended(Duration::from_micros(10));
        assert_eq!(pace.room(4, 0), 100);
    }

    #[test]
    fn an_idle_worker_polls_slower_and_a_job_wakes_it() {
        let start = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, start);
        pace.claimed(More::No, 0, start);
        assert!(pace.next_claim() <= start + POLL.mul_f64(1.1));
        let mut later = start + LONG_IDLE;
        for _ in 0..10 {
            later += Duration::from_millis(1);
            poll(&mut pace, 0, later);
        }
        assert!(pace.next_claim() >= later + POLL.mul_f64(4.5));
        poll(&mut pace, 1, later);
        assert_eq!(pace.next_claim(), later);
    }

    #[test]
    fn a_claim_that_returned_fewer_jobs_is_followed_by_one_with_their_outcomes_or_soon() {
        let now = Instant::now();
        let mut pace = Pace::new(4, 0, POLL, now);
        pace.claim_sent(false);
        pace.claimed(More::after(4, 4), 4, now);
        assert_eq!(pace.next_claim(), now);
        pace.claim_sent(false);
        pace.claimed(More::after(4, 1), 1, now);
        assert_eq!(pace.next_claim(), now + PARTIAL_DELAY);
        pace.claim_sent(false);
        assert_eq!(pace.cause, Cause::Continuing, "no poll");
    }

    /// Sends a claim of up to 1 job, because the poll interval was over.
    fn poll(pace: &mut Pace, got: usize, now: Instant) {
        pace.more = false;
        pace.claim_sent(false);
        assert_eq!(pace.cause, Cause::Poll);
        pace.claimed(More::after(1, got), got, now);
    }

    /// Handles a notification, and a claim for it that returns nothing.
    fn hear(pace: &mut Pace, now: Instant) {
        pace.notified(now);
        pace.claim_sent(false);
        pace.claimed(More::No, 0, now);
    }

    /// Polls an empty queue until the interval grows no more, and returns it.
    fn settled_interval(pace: &mut Pace, now: Instant) -> Duration {
        let later = now + LONG_IDLE + POLL;
        for _ in 0..10 {
            poll(pace, 0, later);
        }
        pace.next_claim().duration_since(later)
    }

    #[test]
    fn with_notifications_an_idle_worker_polls_every_five_seconds() {
        let now = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, now);
        assert!(settled_interval(&mut pace, now) < POLL * 6);
        pace.notified(now);
        pace.claim_sent(false);
        pace.claimed(More::No, 1, now);
        let first = pace.next_claim().duration_since(now);
        assert!(first > POLL * 4 && first < POLL * 6, "{first:?}");
        assert!(settled_interval(&mut pace, now) > POLL * 22);
        pace.connected();
        assert!(settled_interval(&mut pace, now) < POLL * 6);
    }

    #[test]
    fn work_that_only_a_poll_found_ends_the_reliance_on_notifications() {
        let now = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, now);
        hear(&mut pace, now);
        assert!(settled_interval(&mut pace, now) > POLL * 22);
        poll(&mut pace, 1, now);
        assert!(settled_interval(&mut pace, now) < POLL * 6);
        hear(&mut pace, now);
        assert!(
            !pace.relies_on_notifications(),
            "one is not enough any more"
        );
        hear(&mut pace, now);
        assert!(pace.relies_on_notifications());
    }

    #[test]
    fn a_notification_during_a_claim_asks_for_another_one() {
        let now = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, now);
        pace.claim_sent(false);
        pace.notified(now);
        pace.claimed(More::No, 0, now);
        assert_eq!(pace.next_claim(), now);
        pace.claim_sent(false);
        pace.claimed(More::No, 0, now);
        assert!(pace.next_claim() > now);
    }

    #[test]
    fn notifications_in_vain_are_answered_a_little_later() {
        let now = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, now);
        let mut later = 0;
        for _ in 0..100 {
            pace.notified(now);
            assert!(pace.next_claim() <= now + Duration::from_millis(64));
            later += u32::from(pace.next_claim() > now);
            pace.claim_sent(false);
            pace.claimed(More::No, 0, now);
        }
        assert!(later > 90, "{later}");
        pace.claim_sent(false);
        pace.claimed(More::No, 1, now);
        pace.notified(now);
        assert_eq!(pace.next_claim(), now);
    }
}
