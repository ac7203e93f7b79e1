//! The rows that the target did not take and did not refuse either, each with a reason.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::source::Entry;
use crate::{Result, Trouble};

/// After which time a row is first tried again; each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Most rows; beyond it the fault is not that of rows.
const MOST: usize = 1000;
/// Most rows that are tried again between two looks.
const AT_ONCE: usize = 4;

struct Row {
    unique_key: Option<String>,
    reason: String,
    until: Instant,
    pause: Duration,
}

/// What the looks leave out: these rows, and what has the unique key of one of them.
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

    /// Returns whether another row with the unique key of this one is here.
    pub(crate) fn is_before(&self, entry: &Entry) -> bool {
        let Some(key) = entry.unique_key.as_deref() else {
            return false;
        };
        !self.0.contains_key(&entry.id) && self.unique_keys().contains(&key)
    }

    /// Returns the rows whose time to be tried again has come.
    pub(crate) fn due(&self, now: Instant) -> Vec<i64> {
        let due = self.0.iter().filter(|(_, row)| row.until <= now);
        due.map(|(id, _)| *id).take(AT_ONCE).collect()
    }

    /// Returns when the first of them is tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().map(|row| row.until).min()
    }

    /// Holds a row back, longer each time.
    ///
    /// # Errors
    /// When there are too many: what ails them is not theirs.
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

    /// Returns why the first of them is here.
    pub(crate) fn reason(&self) -> Option<String> {
        let (id, row) = self.0.first_key_value()?;
        let others = match self.0.len() {
            1 => String::new(),
            count => format!("{count} rows are held back; "),
        };
        Some(format!("{others}row {id} is held back: {}", row.reason))
    }
}
