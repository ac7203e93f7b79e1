//! Real servers, real clients: one file for each stage.

mod access;
mod claim;
mod cycle;
mod dead_letter;
mod due;
mod errors;
mod group;
mod lease;
mod manifest;
mod outcome;
mod plan;
mod schema;
mod work_queue;
