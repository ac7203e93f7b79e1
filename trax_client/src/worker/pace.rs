//! How eagerly to claim: how many jobs to have in hand, and when to ask an empty queue again.

use std::time::{Duration, Instant};

use super::connection::fraction;

/// Jobs are fetched ahead for what handlers finish in this time, a few round trips.
const AHEAD: Duration = Duration::from_millis(20);
/// After this long without a job the polls grow slower.
const LONG_IDLE: Duration = Duration::from_secs(5);
/// How much slower, at most.
const SLOWEST: u32 = 5;

pub(crate) struct Pace {
    concurrency: usize,
    max_prefetch: usize,
    poll_interval: Duration,
    /// The moving average of what a handler takes; none before the first one ended.
    average: Option<Duration>,
    idle_since: Instant,
    slowness: u32,
    pub(crate) next_claim: Instant,
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
            idle_since: now,
            slowness: 1,
            next_claim: now,
        }
    }

    pub(crate) fn ended(&mut self, took: Duration) {
        self.average = Some(match self.average {
            Some(average) => average.mul_f64(0.9) + took.mul_f64(0.1),
            None => took,
        });
    }

    /// How many jobs may wait here beside those that run. Long jobs are not hoarded: another
    /// worker could start them.
    pub(crate) fn prefetch(&self) -> usize {
        match self.average {
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

    /// After a claim that asked for `want` and brought `got`.
    pub(crate) fn claimed(&mut self, want: usize, got: usize, now: Instant) {
        if got > 0 {
            self.idle_since = now;
            self.slowness = 1;
        } else if now.duration_since(self.idle_since) > LONG_IDLE {
            self.slowness = (self.slowness + 1).min(SLOWEST);
        }
        self.next_claim = if got < want {
            // Between 0.9 and 1.1 of the interval: a fleet started together drifts apart.
            now + (self.poll_interval * self.slowness).mul_f64(0.9 + 0.2 * fraction())
        } else {
            now
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
    fn an_idle_worker_polls_slower_and_a_job_wakes_it() {
        let start = Instant::now();
        let mut pace = Pace::new(1, 0, POLL, start);
        pace.claimed(1, 0, start);
        assert!(pace.next_claim <= start + POLL.mul_f64(1.1));
        let mut later = start + LONG_IDLE;
        for _ in 0..10 {
            later += Duration::from_millis(1);
            pace.claimed(1, 0, later);
        }
        assert!(pace.next_claim >= later + POLL.mul_f64(4.5));
        pace.claimed(1, 1, later);
        assert_eq!(pace.next_claim, later);
    }
}
