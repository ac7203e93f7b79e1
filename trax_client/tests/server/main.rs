//! The client against real servers. A single binary: one link.

mod calls;
mod declared;
mod example;
mod handler;
mod json;
mod many;
mod producer;
mod steps;
mod testkit;
mod wake;
mod worker;
