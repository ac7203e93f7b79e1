//! A database with the extension: its connections, and the state shared by its pages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;
use trax_client::Address;

use crate::glance::Glances;
use crate::viewers::Viewers;
use crate::work::Pool;

/// The state shared by all requests for the pages of a database.
pub(crate) struct Database {
    pub(crate) pool: Arc<Pool>,
    pub(crate) viewers: Viewers,
    /// Whether each role may read the live numbers, and when that was checked.
    pub(crate) readers: Mutex<HashMap<Option<String>, (Instant, bool)>>,
    pub(crate) glances: Arc<Glances>,
    /// The earliest time at which many dead letters may be requeued again.
    pub(crate) next_requeue: Mutex<Instant>,
}

impl Database {
    pub(crate) fn new(address: Address, connections: usize) -> Self {
        let pool = Arc::new(Pool::new(address, connections));
        Database {
            viewers: Viewers::new(),
            readers: Mutex::default(),
            glances: Arc::new(Glances::new(Arc::clone(&pool))),
            next_requeue: Mutex::new(Instant::now()),
            pool,
        }
    }
}
