//! A database with the extension: its connections, and the state shared by its pages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use trax_client::Address;

use crate::glance::Glances;
use crate::identity::Person;
use crate::trouble::Trouble;
use crate::viewers::Viewers;
use crate::work::{Pool, Purpose};

/// How long a silent database may take to answer, and the pause before it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);

/// The state shared by all requests for the pages of a database.
pub(crate) struct Database {
    pub(crate) pool: Arc<Pool>,
    pub(crate) viewers: Viewers,
    /// Whether each role may read the live numbers, and when that was checked.
    pub(crate) readers: Mutex<HashMap<Option<String>, (Instant, bool)>>,
    pub(crate) glances: Arc<Glances>,
    /// The earliest time at which many dead letters may be requeued again.
    pub(crate) next_requeue: Mutex<Instant>,
    /// When a page waited in vain for an answer; `None` since the database answers again.
    silent_since: Lock<Option<Instant>>,
}

impl Database {
    pub(crate) fn new(address: Address, connections: usize) -> Self {
        let pool = Arc::new(Pool::new(address, connections));
        Database {
            viewers: Viewers::new(),
            readers: Mutex::default(),
            glances: Arc::new(Glances::new(Arc::clone(&pool))),
            next_requeue: Mutex::new(Instant::now()),
            silent_since: Lock::default(),
            pool,
        }
    }

    /// Returns since when the database does not answer.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        *self.silence()
    }

    fn silence(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.silent_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the database did not answer, and asks it in the background until it does.
    pub(crate) fn watch(self: &Arc<Self>) {
        let mut silence = self.silence();
        if silence.is_some() {
            return;
        }
        *silence = Some(Instant::now());
        drop(silence);
        let watched = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(database) = watched.upgrade() {
                if let Ok(Ok(())) = timeout(PATIENCE, database.greet()).await {
                    *database.silence() = None;
                    return;
                }
                drop(database);
                sleep(PAUSE).await;
            }
        });
    }

    async fn greet(&self) -> Result<(), Trouble> {
        let work = self.pool.begin(&Person::default(), Purpose::Read).await?;
        work.commit().await
    }
}
