//! Throw-away PostgreSQL servers for tests and demonstrations.
//!
//! `initdb` runs once per PostgreSQL version; every [`Server`] is a copy of that template with its
//! own directory, port and socket. It stops and removes itself on drop, and dies with its owner even
//! if that is killed.
//!
//! ```no_run
//! # async fn example() -> Result<(), trax_client::testkit::Error> {
//! use trax_client::testkit::Server;
//!
//! let server = Server::options().fast().start()?;
//! let database = server.database("orders").await?; // with the extension
//! let client = database.connect().await?;
//! # Ok(())
//! # }
//! ```

mod database;
mod directory;
mod install;
mod options;
mod server;
mod spawn;

use std::fmt;

pub use database::Database;
pub use options::Options;
pub use server::{Server, Stop};

/// Why a server could not be made, in one or more lines for a person.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Error(text.into())
    }

    /// `what: cause`.
    pub(crate) fn of(what: impl fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
        move |cause| Error(format!("{what}: {cause}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error(crate::error::chain(&error))
    }
}
