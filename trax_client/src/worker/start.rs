//! Whether a worker is still at its start, where a refusal of a database ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The start of a worker: until one of its databases has answered a claim. One that ends with its
/// queues is at its start until then.
#[derive(Clone)]
pub(crate) struct Start {
    is_over: Arc<AtomicBool>,
    until_empty: bool,
}

impl Start {
    pub(crate) fn new(until_empty: bool) -> Self {
        Start {
            is_over: Arc::default(),
            until_empty,
        }
    }

    /// Notes that a claim was answered.
    pub(crate) fn claimed(&self) {
        self.is_over.fetch_or(!self.until_empty, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
