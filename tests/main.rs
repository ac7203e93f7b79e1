//! Tests with real servers and clients: a folder for each stage in `trax_pg/src/lib.rs`, for the
//! command and for the client's worker and test kit; `whole` holds the tests across stages.

mod access_scope;
mod audit;
mod await_job;
mod background;
mod believed_clock;
mod claim;
mod cleanup;
mod command;
mod conformance;
mod cycle;
mod dead_letter;
mod direct_write;
mod due;
mod group;
mod instance;
mod lease;
mod limit;
mod manifest;
mod manifest_state;
mod metrics;
mod new_job;
mod outcome;
mod progress;
mod relay;
mod router;
mod server;
mod sql_job;
mod testkit;
mod token;
mod unreadable_job;
mod wake;
mod web;
mod whole;
mod work_queue;
mod worker;
