//! When things run: the cron dialect and the zones it is read in.
//!
//! Everything here is pure. Time comes in as an argument (microseconds since the Unix epoch, UTC),
//! a zone as something that answers [`zone::Zone::offset_at`], and nothing here knows that
//! PostgreSQL exists.

pub mod calendar;
pub mod cron;
pub mod zone;

pub use cron::{Cron, CronError, Note, Occurrence};
pub use zone::{Utc, Zone};

#[cfg(test)]
mod enumerator;
