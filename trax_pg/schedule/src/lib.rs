//! Schedules: the cron dialect, time zones, and exclusions.
//!
//! Everything here is pure. Time comes in as an argument (microseconds since the Unix epoch, UTC),
//! a zone as an implementation of [`zone::Zone::offset_at`], and nothing here depends on
//! PostgreSQL.

pub mod calendar;
pub mod cron;
pub mod exclusion;
mod sentence;
pub mod zone;

pub use cron::{Allowed, Cron, CronError, Note, Occurrence};
pub use exclusion::{Excluded, ExclusionError, Exclusions};
pub use sentence::describe;
pub use zone::{Utc, Zone};

#[cfg(test)]
mod against_croner;
#[cfg(test)]
mod enumerator;
