//! Real servers, real clients: one file for each stage.

mod cleanup;
mod crash;
mod dump;
mod scheduler;
mod worker;
