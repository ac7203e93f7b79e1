//! Real servers, real clients: one file for each stage.

mod access;
mod claim;
mod cleanup;
mod command;
mod complete_and_claim;
mod crash;
mod cycle;
mod dead_letter;
mod due;
mod dump;
mod errors;
mod group;
mod lease;
mod manifest;
mod outcome;
mod plan;
mod readme;
mod scheduler;
mod schema;
mod wake;
mod work_queue;
mod worker;
