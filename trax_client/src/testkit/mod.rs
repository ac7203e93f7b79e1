//! Test support: throw-away servers, running one job inline, assertions on enqueued jobs, and
//! advancing time.
//!
//! A complete unit test of a handler:
//!
//! ```
#![doc = include_str!("../../tests/server/handler.rs")]
//! ```
//!
//! [`Worker::run_one`](crate::Worker::run_one) claims and executes exactly one job, with its
//! middleware and nothing running beside it. Its connection may be a transaction that is rolled
//! back at the end, so that tests can share a database. With [`pass_time`] a test does not wait for
//! a retry. If a handler depends on the time, let it use
//! [`Context::scheduled_for`](crate::Context::scheduled_for) as the scheduled time, or sleep on
//! Tokio's clock, which `#[tokio::test(start_paused = true)]` advances automatically.
//!
//! [`Worker::run_through`](crate::Worker::run_through) runs a job with steps to its end: it skips
//! the time of sleeps and runs the children. A test sends the signals:
//!
//! ```
#![doc = include_str!("../../tests/server/steps.rs")]
//! ```
//!
//! # Servers
//!
//! `initdb` runs once per PostgreSQL version; every [`Server`] is a copy of that template with its
//! own directory, port and socket. A server is stopped and removed on drop, and ends with its owner
//! even if the owner is killed.
//!
//! The server is the PostgreSQL that the variable `PG_CONFIG` names (the path of its `pg_config`),
//! else that of the `pg_config` in `PATH`, else Debian's newest; trax must be installed in it.
//!
//! A server listens only on its socket, in a directory that only the user of the test can open, so
//! no other user of the machine can become its superuser. [`Options::tcp`] adds 127.0.0.1, with a
//! random password.
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
mod enqueued;
mod install;
mod options;
mod port;
mod run;
mod server;
mod spawn;
mod time;

use std::fmt;

pub use database::Database;
pub use enqueued::{Enqueued, assert_enqueued, assert_not_enqueued, enqueued};
pub use options::Options;
pub use port::free_port;
pub use run::{Ended, Ran};
pub(crate) use run::{Living, living, nothing_ready, recorded, stuck};
pub use server::{Server, Stop};
pub(crate) use time::cycle;
pub use time::{machine_slept, pass_time};

/// An error of a server or a test, as one or more lines of text.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Error(text.into())
    }

    /// Returns `what: cause`.
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

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Error(error.to_string())
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error(crate::error::chain(&error))
    }
}
