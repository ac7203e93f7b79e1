//! Retry or dead, and how long until the retry.
//!
//! An **attempt** is one execution of a job, counted from 1; a job has `1 + max_retries` of them.
//! Randomness is passed in as an argument.

use std::time::Duration;

/// The largest part of a delay that jitter subtracts.
const JITTER: f64 = 0.1;

/// How long a job waits between attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The wait after the first attempt.
    pub delay: Duration,
    /// The factor of each further wait. Below 0 or not a number counts as 1.
    pub backoff: f64,
    /// The longest wait.
    pub max: Duration,
}

impl Policy {
    /// Returns the wait before the retry that follows a failed attempt:
    /// `delay * backoff^(failed_attempt - 1)`, at most `max`, less up to 10 %.
    ///
    /// `jitter` is a random number from 0 to 1 that decides how much of the 10 % is subtracted.
    /// Jitter only shortens, so that jobs which have all reached the cap return at different times
    /// and none later than the cap.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trax::retry::Policy;
    ///
    /// let policy = Policy {
    ///     delay: Duration::from_secs(300),
    ///     backoff: 2.0,
    ///     max: Duration::from_secs(3600),
    /// };
    /// assert_eq!(policy.delay_before_attempt(1, 0.0), Duration::from_secs(300));
    /// assert_eq!(policy.delay_before_attempt(3, 0.0), Duration::from_secs(1200));
    /// assert_eq!(policy.delay_before_attempt(9, 1.0), Duration::from_secs(3240));
    /// ```
    pub fn delay_before_attempt(&self, failed_attempt: i32, jitter: f64) -> Duration {
        if self.delay.is_zero() {
            return Duration::ZERO;
        }
        let backoff = if self.backoff >= 0.0 {
            self.backoff
        } else {
            1.0
        };
        let exponent = f64::from(failed_attempt) - 1.0;
        let grown = self.delay.as_secs_f64() * backoff.powf(exponent.max(0.0));
        let capped = grown.min(self.max.as_secs_f64());
        let jitter = if jitter.is_nan() {
            0.0
        } else {
            jitter.clamp(0.0, 1.0)
        };
        // Only a cap at the end of the range rounds up to more than a duration can hold.
        Duration::try_from_secs_f64(capped * (1.0 - JITTER * jitter))
            .map_or(self.max, |delay| delay.min(self.max))
    }
}

/// The consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The job is queued again.
    Retry,
    /// The job is a dead letter.
    Dead,
}

impl Verdict {
    /// Decides after a failed attempt: dead when the failure is permanent or the attempts are
    /// spent.
    pub fn after(attempt: i32, max_retries: i32, permanent: bool) -> Verdict {
        if permanent || attempt > max_retries {
            Verdict::Dead
        } else {
            Verdict::Retry
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        delay: Duration::from_secs(300),
        backoff: 2.0,
        max: Duration::from_secs(3_600),
    };

    #[test]
    fn the_delay_doubles_up_to_the_cap() {
        let delays = [1, 2, 3, 4, 5, 6].map(|n| POLICY.delay_before_attempt(n, 0.0).as_secs());
        assert_eq!(delays, [300, 600, 1_200, 2_400, 3_600, 3_600]);
    }

    #[test]
    fn jitter_takes_away_a_tenth_at_most() {
        for attempt in 1..20 {
            let full = POLICY.delay_before_attempt(attempt, 0.0);
            for jitter in [0.1, 0.5, 0.999] {
                let delay = POLICY.delay_before_attempt(attempt, jitter);
                assert!(
                    delay < full && delay >= full.mul_f64(0.9),
                    "{attempt} {jitter} {delay:?}"
                );
            }
        }
    }

    #[test]
    fn no_argument_overflows_or_leaves_the_range() {
        let delays = [0, 1, 300, u64::MAX].map(Duration::from_secs);
        let factors = [
            0.0,
            0.5,
            1.0,
            2.0,
            1e300,
            -1.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let attempts = [i32::MIN, -1, 0, 1, 2, 1_000, i32::MAX];
        let jitters = [0.0, 0.5, 1.0, 7.0, -7.0, f64::INFINITY, f64::NAN];
        for (delay, max) in delays
            .iter()
            .flat_map(|d| delays.iter().map(move |m| (*d, *m)))
        {
            for backoff in factors {
                let policy = Policy {
                    delay,
                    backoff,
                    max,
                };
                for attempt in attempts {
                    for jitter in jitters {
                        let delay = policy.delay_before_attempt(attempt, jitter);
                        assert!(delay <= max, "{policy:?} {attempt} {jitter} {delay:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_cap_below_the_delay_holds_from_the_first_attempt() {
        let policy = Policy {
            max: Duration::from_secs(10),
            ..POLICY
        };
        assert_eq!(policy.delay_before_attempt(1, 0.0), Duration::from_secs(10));
    }

    #[test]
    fn a_job_has_one_attempt_more_than_retries() {
        assert_eq!(Verdict::after(1, 0, false), Verdict::Dead);
        let after = [1, 2, 3, 4].map(|attempt| Verdict::after(attempt, 2, false));
        assert_eq!(
            after,
            [Verdict::Retry, Verdict::Retry, Verdict::Dead, Verdict::Dead]
        );
        assert_eq!(Verdict::after(i32::MAX, i32::MAX, false), Verdict::Retry);
    }

    #[test]
    fn a_permanent_failure_is_never_retried() {
        assert_eq!(Verdict::after(1, 100, true), Verdict::Dead);
    }
}
