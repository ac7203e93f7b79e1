//! Real servers, real clients: one file for each stage.

mod scheduler;
