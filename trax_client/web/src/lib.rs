//! `trax web`: the page an operator leaves open, and a router for other axum programs.
//!
//! Enters: requests of people. Leaves: pages written on the server, acts, and a stream of live
//! numbers. Holds: a page can do what its database role can and nothing more; every act is one
//! call of a public function in a transaction of its own, which `trax.audit` remembers with the
//! person's name; what the database did not answer just now is never shown.
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
mod pages;
mod trouble;
mod visit;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use trax_client::Address;

pub use identity::{Identity, Passwords, Roles};

/// How the pages are served.
#[derive(Debug)]
pub struct Options {
    /// Names under which the pages may be asked for, as in the header Host; none: by any name.
    /// Without this check a hostile site could give its own name this address.
    pub hosts: Vec<String>,
    /// The path in front of every link, where a proxy removes it from requests: "/trax".
    pub base: String,
    /// How people are known.
    pub identity: Identity,
    /// No page has a button, and every act is refused: the default.
    pub read_only: bool,
    /// Most connections to the database at the same time; at a router, to each shard.
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
pub struct Site(Arc<dispatch::Shared>);

impl Site {
    /// Returns the pages; nothing is connected before the first request.
    pub fn new(address: Address, options: Options) -> Self {
        Site(Arc::new(dispatch::Shared::new(address, options)))
    }

    /// Returns the router, to be served or nested under any path.
    pub fn router(&self) -> Router {
        let site = self.clone();
        Router::new().fallback(move |request: Request| {
            let site = site.clone();
            async move { dispatch::answer(&site.0, request).await }
        })
    }

    /// Knows people in this way from now on; a stream of live numbers ends if its person has the
    /// role no more.
    pub fn set_identity(&self, identity: Identity) {
        self.0.set_identity(identity);
    }

    /// Serves the pages until the listener fails.
    pub async fn serve(&self, listener: tokio::net::TcpListener) -> std::io::Result<()> {
        axum::serve(listener::Bounded::new(listener), self.router()).await
    }
}
