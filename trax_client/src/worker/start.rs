//! Tracks whether a worker is still starting; until then a refusal by a database ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The start of a worker lasts until one of its databases has answered a claim; with `until_empty`,
/// until the end.
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

    /// Records that a claim was answered.
    pub(crate) fn claimed(&self) {
        self.is_over.fetch_or(!self.until_empty, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
