//! The state of a site, which all requests share.

use std::sync::{Arc, PoisonError, RwLock};

use trax_client::Address;

use crate::Options;
use crate::cluster::{Cluster, Home, Shards};
use crate::database::Database;
use crate::identity::Identity;

/// The state shared by all requests.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// How users are identified; initially as the options set it.
    identity: RwLock<Arc<Identity>>,
    /// The database of the address.
    pub(crate) database: Arc<Database>,
    /// The shards, if the database is a router.
    pub(crate) cluster: Cluster,
    pub(crate) guess: tokio::sync::Mutex<()>,
    /// Signs the tokens of forms. A new key is made at each start.
    pub(crate) key: [u8; 32],
}

impl Shared {
    pub(crate) fn new(address: Address, mut options: Options) -> Self {
        let identity = std::mem::replace(&mut options.identity, Identity::Nobody);
        let database = Arc::new(Database::new(address.clone(), options.connections));
        Shared {
            identity: RwLock::new(Arc::new(identity)),
            cluster: Cluster::of(address, Arc::clone(&database), options.connections),
            database,
            options,
            guess: tokio::sync::Mutex::new(()),
            key: rand::random(),
        }
    }

    /// Returns how users are currently identified.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        let identity = self.identity.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&identity)
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        let mut kept = self
            .identity
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Arc::new(identity);
    }

    /// Returns the database of the address, and its shards if it is a router.
    pub(crate) fn home<'s>(&'s self, shards: Option<&'s Shards>) -> Home<'s> {
        Home {
            address: &self.database,
            shards,
        }
    }
}
