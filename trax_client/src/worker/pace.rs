//! How eagerly to claim: how many jobs to have in hand, and when to ask an empty queue again.

use std::time::{Duration, Instant};

use super::connection::fraction;

/// Jobs are fetched ahead for what handlers finish in this time, a few round trips.
const AHEAD: Duration = Duration::from_millis(20);
/// After this long without a job the polls grow slower.
const LONG_IDLE: Duration = Duration::from_secs(5);
/// How many poll intervals lie between two polls, at most, when nothing else would tell of work.
const SLOWEST: u32 = 5;
/// How many, at least and at most, when notifications are relied on.
const RELYING: (u32, u32) = (5, 25);
/// How many notifications, at most, it takes to rely on them again after they failed.
const MOST_NEEDED: u32 = 16;
/// The longest wait after a notification is a random part of this, doubled that many times.
const VAIN_DELAY: Duration = Duration::from_millis(1);
const VAIN_DOUBLINGS: u32 = 6;

pub(crate) struct Pace {
    concurrency: usize,
    max_prefetch: usize,
    poll_interval: Duration,
    /// The moving average of what a handler takes; none before the first one ended.
    average: Option<Duration>,
    /// Jobs were fetched ahead in vain, and no handler has ended since.
    stalled: bool,
    idle_since: Instant,
    slowness: u32,
    /// When to claim if nobody tells of work before.
    clock: Instant,
    /// When to claim because somebody did.
    summons: Option<Instant>,
    /// The last claim brought something: the next one is no poll.
    more: bool,
    /// What the last claim was sent for.
    cause: Cause,
    /// Notifications on this connection since they were last found missing.
    heard: u32,
    /// How many it takes to rely on them.
    needed: u32,
    /// How many claims in a row came for a notification and brought nothing.
    vain: u32,
}

/// Why a claim is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// Outcomes are told anyway, or the last claim left something.
    Passing,
    Summons,
    Clock,
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
            slowness: 1,
            clock: now,
            summons: None,
            more: true,
            cause: Cause::Passing,
            heard: 0,
            needed: 1,
            vain: 0,
        }
    }

    pub(crate) fn next_claim(&self) -> Instant {
        self.summons.map_or(self.clock, |at| at.min(self.clock))
    }

    /// A new connection: what the one before heard says nothing about it.
    pub(crate) fn connected(&mut self) {
        self.heard = 0;
        self.slowness = self.slowness.min(SLOWEST);
    }

    /// A notification came. Of a fleet that is woken for one job all but one claim in vain; those
    /// come a little later, and not together, the next time.
    pub(crate) fn notified(&mut self, now: Instant) {
        self.heard = self.heard.saturating_add(1);
        let delay = match self.vain {
            0 => Duration::ZERO,
            vain => (VAIN_DELAY * (1 << vain.min(VAIN_DOUBLINGS))).mul_f64(fraction()),
        };
        self.summon(now + delay);
    }

    /// There is a reason to claim at `at`; one that is sent before then serves it too.
    pub(crate) fn summon(&mut self, at: Instant) {
        self.summons = Some(self.summons.map_or(at, |before| before.min(at)));
    }

    /// Notifications come on this connection, and no poll found work that they kept quiet about.
    fn relies(&self) -> bool {
        self.heard >= self.needed
    }

    /// A claim is being sent, together with outcomes or alone.
    pub(crate) fn claims(&mut self, with_outcomes: bool) {
        let summoned = self.summons.take().is_some();
        self.cause = if summoned {
            Cause::Summons
        } else if with_outcomes || self.more {
            Cause::Passing
        } else {
            Cause::Clock
        };
    }

    /// A job that was fetched ahead goes back unstarted: it is not to be fetched again at once.
    pub(crate) fn stalled(&mut self) {
        self.stalled = true;
    }

    pub(crate) fn ended(&mut self, took: Duration) {
        self.stalled = false;
        self.average = Some(match self.average {
            Some(average) => average.mul_f64(0.9) + took.mul_f64(0.1),
            None => took,
        });
    }

    /// How many jobs may wait here beside those that run. Long jobs are not hoarded: another
    /// worker could start them.
    pub(crate) fn prefetch(&self) -> usize {
        match self.average {
            _ if self.stalled => 0,
            None => 0,
            Some(average) => {
                let finish = AHEAD.as_secs_f64() / average.as_secs_f64().max(1e-6);
                ((finish * self.concurrency as f64) as usize).min(self.max_prefetch)
            }
        }
    }

    /// How many jobs to ask for, with this many running and waiting here.
    pub(crate) fn room(&self, running: usize, waiting: usize) -> usize {
        let prefetch = self.prefetch();
        if waiting > prefetch / 2 {
            return 0;
        }
        (self.concurrency + prefetch).saturating_sub(running + waiting)
    }

    /// After a claim that brought `got`, and behind which there may be more.
    pub(crate) fn claimed(&mut self, more: bool, got: usize, now: Instant) {
        self.more = more;
        if got > 0 {
            // Work that the clock alone found: a notification is late, or they do not arrive.
            if self.relies() && self.cause == Cause::Clock && self.summons.is_none() {
                self.heard = 0;
                self.needed = (self.needed * 2).min(MOST_NEEDED);
            }
            self.idle_since = now;
            self.vain = 0;
        } else if self.cause == Cause::Summons {
            self.vain = self.vain.saturating_add(1);
        }
        let (least, most) = RELYING;
        self.slowness = match (self.relies(), got) {
            (true, 0) => (self.slowness * 2).clamp(least, most),
            (true, _) => least,
            (false, 0) if now.duration_since(self.idle_since) > LONG_IDLE => {
                (self.slowness + 1).min(SLOWEST)
            }
            (false, 0) => self.slowness.min(SLOWEST),
            (false, _) => 1,
        };
        self.clock = if self.more {
            now
        } else {
            // Between 0.9 and 1.1 of the interval: a fleet started together drifts apart.
            now + (self.poll_interval * self.slowness).mul_f64(0.9 + 0.2 * fraction())
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
        pace.ended(Duration::from_micros(10));
        assert_eq!(pace.prefetch(), 100);
        assert_eq!(pace.room(4, 50), 50);
        assert_eq!(pace.room(4, 51), 0);
    }

    #[test]
    fn long_jobs_are_not_fetched_ahead() {
        let mut pace = Pace::new(4, 100, POLL, Instant::now());
        pace.ended(Duration::from_secs(1));
        assert_eq!(pace.prefetch(), 0);
    }

    #[test]
    fn nothing_is_fetched_ahead_of_handlers_that_stand_still() {
        let mut pace = Pace::new(4, 100, POLL, Instant::now());
        pace.ended(Duration::from_micros(10));
        pace.stalled();
        assert_eq!((pace.room(4, 0), pace.room(3, 0)), (0, 1));
        pace.ended(Duration::from_micros(10));
        assert_eq!(pace.room(4, 0), 100);
    }

    #[test]
    fn an_idle_worker_polls_slower_and_a_job_wakes_it() {
        let start = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, start);
        pace.claimed(false, 0, start);
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

    /// A claim of up to 1 job that nothing but the clock asked for.
    fn poll(pace: &mut Pace, got: usize, now: Instant) {
        pace.more = false;
        pace.claims(false);
        assert_eq!(pace.cause, Cause::Clock);
        pace.claimed(got > 0, got, now);
    }

    /// A notification, and a claim for it that brings nothing.
    fn hear(pace: &mut Pace, now: Instant) {
        pace.notified(now);
        pace.claims(false);
        pace.claimed(false, 0, now);
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
        pace.claims(false);
        pace.claimed(false, 1, now);
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
        assert!(!pace.relies(), "one is not enough any more");
        hear(&mut pace, now);
        assert!(pace.relies());
    }

    #[test]
    fn a_notification_during_a_claim_asks_for_another_one() {
        let now = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, now);
        pace.claims(false);
        pace.notified(now);
        pace.claimed(false, 0, now);
        assert_eq!(pace.next_claim(), now);
        pace.claims(false);
        pace.claimed(false, 0, now);
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
            pace.claims(false);
            pace.claimed(false, 0, now);
        }
        assert!(later > 90, "{later}");
        pace.claims(false);
        pace.claimed(false, 1, now);
        pace.notified(now);
        assert_eq!(pace.next_claim(), now);
    }
}
