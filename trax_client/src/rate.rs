//! Rates.

use std::time::{Duration, SystemTime};

/// The settings of a rate, for `Client::configure_rate`.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub(crate) allowed: i32,
    pub(crate) period: Duration,
    pub(crate) burst: Option<i32>,
}

impl Rate {
    /// Returns a rate of which each key allows so many starts in each period.
    pub fn new(allowed: i32, period: Duration) -> Self {
        Rate {
            allowed,
            period,
            burst: None,
        }
    }

    /// Sets how many may start at once after a pause; by default as many as in a period.
    pub fn burst(mut self, burst: i32) -> Self {
        self.burst = Some(burst);
        self
    }
}

/// Until when a rate is closed, for `Client::close_rate`.
#[derive(Clone, Copy, Debug)]
pub enum Closed {
    /// Nothing starts for this time from now, at most ten years.
    For(Duration),
    /// Nothing starts before this time.
    Until(SystemTime),
    /// It is open.
    Open,
}

/// The answer of `Client::consume_rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// It may start now.
    Granted,
    /// It may start after this time; `None` if the rate is closed until it is opened.
    RetryAfter(Option<Duration>),
}
