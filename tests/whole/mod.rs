//! Tests across stages: the install, rights, documentation, crashes, and all stages at once.

mod access;
mod bad_row;
mod beside;
mod crash;
mod diagnose;
mod dump;
mod errors;
mod every_major;
mod extreme_argument;
mod extreme_value;
mod house;
mod idle;
mod late;
mod lock_order;
mod model;
mod name;
mod neighbor;
mod pair;
mod parallel;
mod plan;
mod readme;
mod schema;
mod settings;
mod storm;
mod upgrade;
