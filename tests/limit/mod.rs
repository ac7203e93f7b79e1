//! Limits of the database, of groups and of concurrency keys: exact, live, and free for whoever is
//! not limited.

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
