//! The time of a manifest's next run.

mod dependency;
