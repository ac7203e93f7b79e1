//! When things run: the cron dialect, the zones it is read in, and what is excluded.
//!
//! Everything here is pure. Time comes in as an argument (microseconds since the Unix epoch, UTC),
//! a zone as something that answers [`zone::Zone::offset_at`], and nothing here knows that
//! PostgreSQL exists.

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
