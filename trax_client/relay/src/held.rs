//! Held rows: those that the target neither accepted nor refused, each with a reason.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::row::Entry;
use crate::{Result, Trouble};

/// The time before a row is first tried again; doubled each time up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of rows. If more are held, the rows are not the cause.
const MOST: usize = 1000;
/// The maximum number of rows tried again between two polls.
const AT_ONCE: usize = 4;

struct Row {
    unique_key: Option<String>,
    reason: String,
    until: Instant,
    pause: Duration,
}

/// The rows that polls exclude, together with rows that share a unique key with one of them.
#[derive(Default)]
pub(crate) struct Held(BTreeMap<i64, Row>);

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn unique_keys(&self) -> Vec<&str> {
        let keys = self.0.values().filter_map(|row| row.unique_key.as_deref());
        keys.collect()
    }

    /// Returns whether another row with this row's unique key is held.
    pub(crate) fn is_before(&self, entry: &Entry) -> bool {
        let Some(key) = entry.unique_key.as_deref() else {
            return false;
        };
        !self.0.contains_key(&entry.id) && self.unique_keys().contains(&key)
    }

    /// Returns the rows that are due to be tried again.
    pub(crate) fn due(&self, now: Instant) -> Vec<i64> {
        let due = self.0.iter().filter(|(_, row)| row.until <= now);
        due.map(|(id, _)| *id).take(AT_ONCE).collect()
    }

    /// Returns when the first row is due to be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().map(|row| row.until).min()
    }

    /// Holds a row, for longer each time.
    ///
    /// # Errors
    /// If too many rows are held, as the rows are then not the cause.
    pub(crate) fn hold(&mut self, entry: &Entry, reason: String, now: Instant) -> Result<()> {
        if self.0.len() >= MOST && !self.0.contains_key(&entry.id) {
            return Err(Trouble::new(format!(
                "{MOST} rows cannot be carried: {reason}"
            )));
        }
        let row = self.0.entry(entry.id).or_insert(Row {
            unique_key: entry.unique_key.clone(),
            reason: String::new(),
            until: now,
            pause: FIRST_PAUSE,
        });
        row.reason = reason;
        row.until = now + row.pause;
        row.pause = (row.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    pub(crate) fn release(&mut self, id: i64) {
        self.0.remove(&id);
    }

    /// Returns the reason for the first held row.
    pub(crate) fn reason(&self) -> Option<String> {
        let (id, row) = self.0.first_key_value()?;
        let others = match self.0.len() {
            1 => String::new(),
            count => format!("{count} rows are held back; "),
        };
        Some(format!("{others}row {id} is held back: {}", row.reason))
    }
}
