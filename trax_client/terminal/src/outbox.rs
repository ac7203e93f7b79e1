//! The outboxes whose jobs a database receives, as reported by their relays, and their problems: no
//! relay carries their rows, rows wait for long, or the database refused them.

use std::time::Duration;

use tokio_postgres::{Error, Row};

use crate::quote;

/// Whether the schema of relays exists in the database and may be read; no row without it.
pub const READABLE: &str = include_str!("query/relay_readable.sql");
/// The outboxes, a row for each.
pub const LIST: &str = include_str!("query/relay_list.sql");
/// How long rows may usually wait, and a relay may be silent.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The last report of an outbox's relay.
pub struct Outbox {
    /// At a router, the shard that receives its rows.
    pub shard: Option<i32>,
    /// `trax_outbox.relay.source`.
    pub id: String,
    /// The name of its database.
    pub name: String,
    pub waiting: i64,
    pub oldest: Duration,
    pub refused: i64,
    /// The reason why rows wait, if known.
    pub trouble: Option<String>,
    /// The time of the report, in seconds since 1970.
    pub reported_at: f64,
    /// The time since the report.
    pub silent: Duration,
}

/// A problem of an outbox, and its fix.
pub struct Problem {
    pub cause: &'static str,
    pub detail: String,
    pub fix: String,
}

impl Outbox {
    /// Reads a row of [`LIST`].
    pub fn read(row: &Row, shard: Option<i32>) -> Result<Self, Error> {
        let length = |name| {
            let seconds: f64 = row.try_get(name)?;
            Ok::<_, Error>(Duration::try_from_secs_f64(seconds).unwrap_or_default())
        };
        Ok(Outbox {
            shard,
            id: row.try_get("outbox")?,
            name: row.try_get("name")?,
            waiting: row.try_get("waiting")?,
            oldest: length("oldest_seconds")?,
            refused: row.try_get("refused")?,
            trouble: row.try_get("trouble")?,
            reported_at: row.try_get("reported_at")?,
            silent: length("silent_seconds")?,
        })
    }

    /// Returns its problems. `patience` is how long rows may wait, and how long a relay may be
    /// silent.
    pub fn problems(&self, patience: Duration) -> Vec<Problem> {
        let Outbox {
            id,
            name,
            waiting,
            refused,
            trouble,
            ..
        } = self;
        let why = match trouble {
            Some(trouble) => format!(" {trouble}."),
            None => String::new(),
        };
        let at = match self.shard {
            Some(shard) => format!("Shard {shard}: "),
            None => String::new(),
        };
        let mut found = Vec::new();
        // A relay reports once a minute.
        if self.silent > patience.max(Duration::from_secs(90)) {
            found.push(Problem {
                cause: "relay_silent",
                detail: format!(
                    "{at}No relay has reported for {} s that it carries the outbox in \"{name}\" ({id}); {waiting} rows waited then.",
                    self.silent.as_secs()
                ),
                fix: format!(
                    "trax relay --from {} --to URL; if that outbox is gone: delete from trax_relay.source where source = '{id}'",
                    quote::word(&format!("dbname={}", quote::conninfo(name)))
                ),
            });
        } else if self.oldest > patience {
            found.push(Problem {
                cause: "relay_behind",
                detail: format!(
                    "{at}{waiting} rows wait in the outbox in \"{name}\" ({id}), the oldest for {} s.{why}",
                    self.oldest.as_secs()
                ),
                fix: "Check the relay's log; many rows at once need a larger --batch.".to_owned(),
            });
        } else if trouble.is_some() {
            found.push(Problem {
                cause: "relay_stopped",
                detail: format!("{at}{waiting} rows wait in the outbox in \"{name}\" ({id}).{why}"),
                fix: "Fix the problem that the relay reports; it then continues by itself."
                    .to_owned(),
            });
        }
        if *refused > 0 {
            found.push(Problem {
                cause: "relay_refused",
                detail: format!("{at}This database refused {refused} rows of the outbox in \"{name}\" ({id})."),
                fix: "There: select id, error, hint from trax_outbox.refused; then trax_outbox.retry(id), or delete the row".to_owned(),
            });
        }
        found
    }
}
