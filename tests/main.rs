//! Real servers, real clients: one file for each stage.

mod crash;
mod dump;
mod scheduler;
