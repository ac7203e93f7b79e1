//! Real servers, real clients: one file for each stage.

mod cleanup;
mod command;
mod crash;
mod dump;
mod readme;
mod scheduler;
mod worker;
