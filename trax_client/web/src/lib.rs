//! `trax web`: pages for operators, and a router for other axum programs.
//!
//! Input: requests. Output: pages rendered on the server, acts, and a stream of live numbers.
//! Invariants: a page can do no more than its database role; every act is one call of a public
//! function in its own transaction, which `trax.audit` records with the user's name; only current
//! answers of the database are shown.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let address: trax_client::Address = "postgres://localhost/app".parse()?;
//! let site = trax_web::Site::new(address, trax_web::Options::default());
//! let program: axum::Router = axum::Router::new().nest("/jobs", site.router());
//! # Ok(()) }
//! ```

mod acts;
mod cluster;
mod database;
mod dispatch;
mod gate;
mod glance;
mod identity;
mod layout;
mod listener;
mod live;
mod moment;
mod numbers;
mod pages;
mod preview;
mod response;
mod route;
mod shared;
mod trouble;
mod viewers;
mod visit;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use trax_client::Address;

use shared::Shared;

pub use identity::{Identity, Passwords, Roles};

/// The options of a site.
#[derive(Debug)]
pub struct Options {
    /// The host names under which the pages are served, as in the header Host; empty for all names.
    /// The check prevents a hostile site from pointing its own name at this address.
    pub hosts: Vec<String>,
    /// The prefix of every link, such as "/trax", if a proxy removes it from requests.
    pub base: String,
    /// How users are identified.
    pub identity: Identity,
    /// Hides all buttons and refuses every act. The default.
    pub read_only: bool,
    /// The maximum number of database connections; at a router, per shard.
    pub connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            hosts: Vec::new(),
            base: String::new(),
            identity: Identity::Nobody,
            read_only: true,
            connections: 4,
        }
    }
}

/// The pages of one database, or of all shards of a router.
#[derive(Clone)]
pub struct Site(Arc<Shared>);

impl Site {
    /// Returns a site. The first request opens the first connection.
    pub fn new(address: Address, options: Options) -> Self {
        Site(Arc::new(Shared::new(address, options)))
    }

    /// Returns the axum router, to be served or nested under any path.
    pub fn router(&self) -> Router {
        let site = self.clone();
        Router::new().fallback(move |request: Request| {
            let site = site.clone();
            async move { dispatch::answer(&site.0, request).await }
        })
    }

    /// Replaces the identification of users. The live stream of a user who loses the role ends.
    pub fn set_identity(&self, identity: Identity) {
        self.0.set_identity(identity);
    }

    /// Serves the pages until the listener fails.
    pub async fn serve(&self, listener: tokio::net::TcpListener) -> std::io::Result<()> {
        axum::serve(listener::Bounded::new(listener), self.router()).await
    }
}
