//! Shared by all programs of trax that are run from a shell: the address of the database, failures
//! of commands, durations, output of SQL jobs, requeueing of ended jobs, reports about outboxes,
//! and text that is safe to print on a terminal.

pub mod address;
mod ask;
mod command;
mod connection;
mod duration;
mod ended_job;
mod failure;
pub mod outbox;
pub mod print;
pub mod quote;
pub mod sql_output;
pub mod stdout;
pub mod text;

pub use ask::confirmed;
pub use command::{Typed, as_commands};
pub use connection::Connection;
pub use duration::{LONGEST, at_least_a_second, duration, duration_from};
pub use ended_job::{Again, EndedJob};
pub use failure::{FAILED, Failure, TIMEOUT, UNHEALTHY, USAGE};
