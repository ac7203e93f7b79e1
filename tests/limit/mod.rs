//! Limits of the database, of groups and of concurrency keys: exact, effective at once, and without
//! cost for unlimited jobs.

mod cost;
mod database;
mod exact;
mod floor;
mod group;
mod key;
mod key_freed;
mod locks;
mod manifest;
mod race;
mod sweep;
