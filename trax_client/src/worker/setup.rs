//! The set-up of a worker.

use std::sync::Arc;
use std::time::Duration;

use super::handlers::Handlers;

/// The state shared by the parts of a running worker.
pub(crate) struct Setup<S> {
    pub(super) handlers: Handlers<S>,
    pub(super) state: Arc<S>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) versions: Option<Vec<String>>,
    pub(super) concurrency: usize,
    pub(super) prefetch: usize,
    pub(super) lease: Duration,
    pub(super) poll_interval: Duration,
    pub(super) grace: Duration,
    pub(super) cancel_patience: Duration,
    pub(super) stall_limit: Duration,
    pub(super) until_empty: bool,
}
