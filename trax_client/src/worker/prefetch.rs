//! Prefetch: how many jobs a worker claims beside those that its handlers run.

use std::time::Duration;

/// The number of jobs fetched ahead is what handlers finish in this time, which is a few round
/// trips.
const PREFETCH_TIME: Duration = Duration::from_millis(20);

pub(crate) struct Prefetch {
    concurrency: usize,
    /// The maximum number of jobs fetched ahead.
    most: usize,
    /// The moving average of a handler's duration; `None` before the first one has ended.
    average: Option<Duration>,
    /// Jobs were fetched ahead in vain, and no handler has ended since.
    stalled: bool,
}

impl Prefetch {
    pub(crate) fn new(concurrency: usize, most: usize) -> Self {
        Prefetch {
            concurrency,
            most,
            average: None,
            stalled: false,
        }
    }

    /// Records that a job fetched ahead is released unstarted. Nothing is fetched ahead until a
    /// handler ends.
    pub(crate) fn released_unstarted(&mut self) {
        self.stalled = true;
    }

    pub(crate) fn handler_ended(&mut self, took: Duration) {
        self.stalled = false;
        self.average = Some(match self.average {
            Some(average) => average.mul_f64(0.9) + took.mul_f64(0.1),
            None => took,
        });
    }

    /// Returns how many jobs may wait here beside the running ones. Long jobs are not fetched
    /// ahead, as another worker could start them.
    pub(crate) fn ahead(&self) -> usize {
        match self.average {
            _ if self.stalled => 0,
            None => 0,
            Some(average) => {
                let finish = PREFETCH_TIME.as_secs_f64() / average.as_secs_f64().max(1e-6);
                ((finish * self.concurrency as f64) as usize).min(self.most)
            }
        }
    }

    /// Returns how many jobs to claim if `most` may run, `running` run and `waiting` wait here.
    pub(crate) fn room(&self, most: usize, running: usize, waiting: usize) -> usize {
        let ahead = self.ahead();
        if waiting > ahead / 2 {
            return 0;
        }
        (most + ahead).saturating_sub(running + waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_in_hand_than_concurrency_and_prefetch() {
        let mut prefetch = Prefetch::new(4, 100);
        assert_eq!(prefetch.room(4, 0, 0), 4);
        assert_eq!(prefetch.room(4, 4, 0), 0);
        prefetch.handler_ended(Duration::from_micros(10));
        assert_eq!(prefetch.ahead(), 100);
        assert_eq!(prefetch.room(4, 4, 50), 50);
        assert_eq!(prefetch.room(4, 4, 51), 0);
    }

    #[test]
    fn long_jobs_are_not_fetched_ahead() {
        let mut prefetch = Prefetch::new(4, 100);
        prefetch.handler_ended(Duration::from_secs(1));
        assert_eq!(prefetch.ahead(), 0);
    }

    #[test]
    fn nothing_is_fetched_ahead_of_handlers_that_stand_still() {
        let mut prefetch = Prefetch::new(4, 100);
        prefetch.handler_ended(Duration::from_micros(10));
        prefetch.released_unstarted();
        assert_eq!((prefetch.room(4, 4, 0), prefetch.room(4, 3, 0)), (0, 1));
        prefetch.handler_ended(Duration::from_micros(10));
        assert_eq!(prefetch.room(4, 4, 0), 100);
    }
}
