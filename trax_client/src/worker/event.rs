//! What a worker tells while it runs, for logs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::id::JobId;

/// Something that an operator may want to read. `Display` gives one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A call failed; it is tried again after the delay.
    Trouble {
        /// Which part of the worker: `claim` or `heartbeat`.
        during: &'static str,
        /// The error.
        error: String,
        /// When the next try is.
        retry_in: Duration,
    },
    /// After trouble a call succeeded.
    Recovered {
        /// Which part of the worker.
        during: &'static str,
    },
    /// A handler failed or panicked.
    Failed {
        /// The job.
        job_id: JobId,
        /// The text of the error.
        error: String,
    },
    /// The server refused an outcome; the attempt was recorded as failed, or runs out by itself.
    Refused {
        /// The job.
        job_id: JobId,
        /// Why.
        error: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Trouble {
                during,
                error,
                retry_in,
            } => {
                write!(
                    f,
                    "{during}: {error}; next try in {} ms",
                    retry_in.as_millis()
                )
            }
            Event::Recovered { during } => write!(f, "{during}: works again"),
            Event::Failed { job_id, error } => write!(f, "job {job_id} failed: {error}"),
            Event::Refused { job_id, error } => {
                write!(f, "job {job_id}: the outcome was refused: {error}")
            }
        }
    }
}

/// Where events go.
#[derive(Clone)]
pub(crate) struct Events(Arc<dyn Fn(&Event) + Send + Sync>);

impl Events {
    pub(crate) fn new(listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Events(Arc::new(listener))
    }

    pub(crate) fn tell(&self, event: Event) {
        (self.0)(&event);
    }
}
