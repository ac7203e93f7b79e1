//! `trax web`: real pages of a real server, requested as by browsers and attackers.

mod act;
mod again;
mod browser;
mod client;
mod cluster;
mod cluster_act;
mod dead;
mod demo;
mod driver;
mod frozen;
mod glance;
mod graph;
mod job;
mod manifest;
mod number;
mod overview;
mod page;
mod people;
mod plan;
mod rights;
mod script;
mod steps;
mod steps_act;
mod table;
