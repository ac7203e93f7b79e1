//! The effect of an error on its job, declared where the error occurs.
//!
//! Input: an error of any type, and its effect (`.permanent()?`, `.retry_in(delay)?`). Output: an
//! error that converts into all common error types (`anyhow::Error`, `eyre::Report`, a box,
//! [`JobError`](super::JobError)). The worker finds the effect again, however many layers wrap the
//! error.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::error::{causes, joined};

/// An error of any type.
pub(crate) type AnyError = Box<dyn StdError + Send + Sync>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    Permanent,
    RetryIn(Duration),
    Snooze(Duration),
    Cancel,
}

/// An error and its effect on the job, as returned by the methods of [`Decide`].
#[derive(Debug)]
pub struct Decided(Mark);

/// The first cause of a `Decided`, which carries the decision. A wrapper such as `anyhow::Error`
/// may hide the type of the error itself, but never the types of its causes.
#[derive(Debug)]
struct Mark {
    decision: Decision,
    error: AnyError,
}

impl Decided {
    fn new(error: impl Into<AnyError>, decision: Decision) -> Self {
        Decided(Mark {
            decision,
            error: error.into(),
        })
    }
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}

impl StdError for Decided {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decision {
            Decision::Permanent => f.write_str("not to be retried"),
            Decision::RetryIn(delay) => write!(f, "to be retried in {delay:?}"),
            Decision::Snooze(delay) => write!(f, "to be tried again in {delay:?}"),
            Decision::Cancel => f.write_str("no longer worth doing"),
        }
    }
}

impl StdError for Mark {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// Declares the effect of an error on its job, on any `Result` in a handler or a function that it
/// calls.
///
/// The error may be of any type that `?` turns into a boxed error: a `thiserror` enum,
/// `anyhow::Error`, `eyre::Report`, a `String`. The returned error can be passed on with `?` in a
/// function that returns any of these, or [`HandlerResult`](super::HandlerResult). If several
/// layers declare an effect, the outermost one applies.
///
/// ```
/// # use std::time::Duration;
/// use trax_client::Decide;
///
/// type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
///
/// async fn charge(cents: String) -> Result<u32> {
///     let cents: u32 = cents.parse().permanent()?; // never gets better
///     let shop = tokio::net::TcpStream::connect("shop.example:443").await;
///     let _shop = shop.retry_in(Duration::from_secs(60))?;
///     Ok(cents)
/// }
/// ```
pub trait Decide<T> {
    /// Makes an error a permanent failure: no attempt follows.
    fn permanent(self) -> Result<T, Decided>;

    /// Retries the job after this delay instead of the job's own.
    fn retry_in(self, delay: Duration) -> Result<T, Decided>;

    /// Releases the job, which waits for this delay without using up an attempt.
    fn snooze(self, delay: Duration) -> Result<T, Decided>;

    /// Cancels the job: no retry and no dead letter follows.
    fn cancel(self) -> Result<T, Decided>;
}

impl<T, E: Into<AnyError>> Decide<T> for Result<T, E> {
    fn permanent(self) -> Result<T, Decided> {
        self.map_err(|error| Decided::new(error, Decision::Permanent))
    }

    fn retry_in(self, delay: Duration) -> Result<T, Decided> {
        self.map_err(|error| Decided::new(error, Decision::RetryIn(delay)))
    }

    fn snooze(self, delay: Duration) -> Result<T, Decided> {
        self.map_err(|error| Decided::new(error, Decision::Snooze(delay)))
    }

    fn cancel(self) -> Result<T, Decided> {
        self.map_err(|error| Decided::new(error, Decision::Cancel))
    }
}

/// Returns the text of an error with all its causes, and the declared effect on the job, if any.
pub(crate) fn read(error: &(dyn StdError + 'static)) -> (String, Option<Decision>) {
    let decision = causes(error).find_map(|cause| Some(mark(cause)?.decision));
    let text = joined(causes(error).filter(|cause| mark(*cause).is_none()));
    (text, decision)
}

fn mark<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Mark> {
    error.downcast_ref()
}
