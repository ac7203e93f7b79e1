//! What every program of trax shares that a person starts from a shell: where the database is, how
//! a command fails, lengths of time, what a SQL job returned, how an ended job is queued again, and
//! text that cannot steer the terminal.

pub mod address;
mod command;
mod connection;
mod duration;
mod ended_job;
mod failure;
pub mod print;
pub mod quote;
pub mod sql_output;
pub mod stdout;
pub mod text;

pub use command::as_commands;
pub use connection::Connection;
pub use duration::{LONGEST, at_least_a_second, duration, duration_from};
pub use ended_job::EndedJob;
pub use failure::{FAILED, Failure, TIMEOUT, UNHEALTHY, USAGE};
