//! A database with the extension: its connections, and the state shared by its pages.

use std::time::Instant;

use trax_client::Address;

use crate::glance::Glances;
use crate::live::Live;
use crate::work::Pool;

/// The state shared by all requests for the pages of a database.
pub(crate) struct Database {
    pub(crate) pool: Pool,
    pub(crate) live: Live,
    pub(crate) glances: Glances,
    /// The earliest time at which many dead letters may be requeued again.
    pub(crate) next_requeue: tokio::sync::Mutex<Instant>,
}

impl Database {
    pub(crate) fn new(address: Address, connections: usize) -> Self {
        Database {
            pool: Pool::new(address, connections),
            live: Live::new(),
            glances: Glances::default(),
            next_requeue: tokio::sync::Mutex::new(Instant::now()),
        }
    }
}
