//! What an error means for its job, said where the error is.
//!
//! Enters: an error of any type, and what it means (`.permanent()?`, `.retry_in(delay)?`). Leaves:
//! an error that every other type of error accepts (`anyhow::Error`, `eyre::Report`, a box,
//! [`JobError`](super::JobError)), in which the worker finds the meaning again, however many
//! layers are put around it.

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

/// An error, and what it means for its job: what the methods of [`Decide`] return.
#[derive(Debug)]
pub struct Decided(Mark);

/// The first cause of a `Decided`, where the decision is found: what boxes an error may hide its
/// type (`anyhow::Error` does), but never that of its causes.
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

/// Says what an error means for its job, on any `Result` of a handler or of what it calls.
///
/// The error may be of any type that `?` turns into a boxed error: a `thiserror` enum,
/// `anyhow::Error`, `eyre::Report`, a `String`. The returned one can be passed on with `?` in a
/// function that returns any of these, or [`HandlerResult`](super::HandlerResult). If several
/// layers say something, the outermost counts.
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
    /// An error is a permanent failure: there is no further attempt.
    fn permanent(self) -> Result<T, Decided>;

    /// After an error the job is retried after this delay instead of its own.
    fn retry_in(self, delay: Duration) -> Result<T, Decided>;

    /// After an error the job waits this long, without using up an attempt.
    fn snooze(self, delay: Duration) -> Result<T, Decided>;

    /// After an error the job ends as cancelled, neither retried nor a dead letter.
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

/// Returns the text of an error with all its causes, and what it means for its job, if it says so.
pub(crate) fn read(error: &(dyn StdError + 'static)) -> (String, Option<Decision>) {
    let decision = causes(error).find_map(|cause| Some(mark(cause)?.decision));
    let text = joined(causes(error).filter(|cause| mark(*cause).is_none()));
    (text, decision)
}

fn mark<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Mark> {
    error.downcast_ref()
}
