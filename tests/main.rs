//! Real servers, real clients: one file for each stage.

mod apply;
mod bad_row;
mod bulk_dead_letter;
mod cleanup;
mod command;
mod crash;
mod dependency;
mod dump;
mod exclusion;
mod explain;
mod fair;
mod guard;
mod misfire;
mod overlap;
mod preview;
mod readme;
mod retention;
mod scheduler;
mod variance;
mod worker;
