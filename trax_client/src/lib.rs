//! The client of trax, the job scheduler that lives inside PostgreSQL.
//!
//! It is thin: everything that decides, decides in the database. [`Client`] calls the functions of
//! the contract over any connection or transaction, [`Worker`] runs a fleet of handlers, and the
//! binary `trax` (feature `cli`) gives people a command line.
//!
//! From nothing to a job that ran, whole:
//!
//! ```no_run
#![doc = include_str!("../examples/hello.rs")]
//! ```
//!
//! Execution is at least once. A handler whose writes must happen exactly once commits them in the
//! transaction that calls [`Client::complete`], and returns [`Outcome::Recorded`].

mod access;
mod address;
mod client;
mod error;
mod health;
mod id;
mod job;
mod manifest;
mod operate;
mod parameter;
mod sql;
#[cfg(feature = "testkit")]
pub mod testkit;
mod tls;
mod token;
mod trace;
mod worker;

pub use access::Access;
pub use address::{Address, SslMode};
pub use client::Client;
pub use error::{Error, Report, Result};
pub use health::{DeadLetter, SchedulerStart, StatusLine, Step, Violation};
pub use id::{JobId, Token};
pub use job::{Beat, Cancelled, ClaimOptions, Claimed, Failed, Failure, JobOptions, NewJob};
pub use manifest::{Group, Manifest};
pub use operate::{Change, DeadLetters, Explanation, Upcoming};
pub use token::{Grant, TokenGuard, TokenRequest};
pub use tokio_postgres;
pub use trace::{MalformedTrace, TraceContext};
pub use worker::{
    Cancellation, Context, Event, FromContext, FromState, HandlerResult, IntoOutcome, JobError,
    Next, Outcome, Reason, Shutdown, State, Stopped, Summary, Task, TaskHandler, Worker,
};
