//! A router in front of shards, each on a separate server.

mod access;
mod away;
mod break_off;
mod cluster;
mod graph;
mod grow;
mod job;
mod lost;
mod manifest;
mod move_away;
mod move_batch;
mod move_broken_off;
mod move_group;
mod move_load;
mod move_lock;
mod operate;
mod pin;
mod placement;
mod rate;
mod refusal;
mod restore;
mod signature;
mod stranger;
mod wire;

pub(crate) use cluster::{Cluster, has_plproxy, shard_server};
