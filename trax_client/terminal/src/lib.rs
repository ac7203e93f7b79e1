//! What every program of trax shares that a person starts from a shell: where the database is, how
//! a command fails, and text that cannot steer the terminal.

pub mod address;
mod failure;
pub mod print;
pub mod text;

pub use failure::{FAILED, Failure, TIMEOUT, UNHEALTHY, USAGE};
