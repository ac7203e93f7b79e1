//! The outboxes that a database gets jobs from, as their relays report them: `trax metrics` and
//! `trax doctor` show how far each is.

use std::time::Duration;

use tokio_postgres::{Client, Row};

const READABLE: &str = include_str!("query/relay_readable.sql");
const LIST: &str = include_str!("query/relay_list.sql");

/// What the relay of an outbox said last.
pub(crate) struct Outbox {
    /// `trax_outbox.relay.source`.
    pub(crate) id: String,
    /// Its database.
    pub(crate) name: String,
    pub(crate) waiting: i64,
    pub(crate) oldest: Duration,
    pub(crate) refused: i64,
    /// Seconds since 1970.
    pub(crate) reported_at: f64,
    /// Since then.
    pub(crate) silent: Duration,
}

impl Outbox {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let length = |name| {
            let seconds: f64 = row.try_get(name)?;
            Ok::<_, tokio_postgres::Error>(Duration::try_from_secs_f64(seconds).unwrap_or_default())
        };
        Ok(Outbox {
            id: row.try_get("outbox")?,
            name: row.try_get("name")?,
            waiting: row.try_get("waiting")?,
            oldest: length("oldest_seconds")?,
            refused: row.try_get("refused")?,
            reported_at: row.try_get("reported_at")?,
            silent: length("silent_seconds")?,
        })
    }
}

/// Returns them; none where there is no relay, or its numbers may not be read.
pub(crate) async fn all(client: &Client) -> Result<Vec<Outbox>, tokio_postgres::Error> {
    let readable = client.query_typed(READABLE, &[]).await?;
    match readable.first().map(|row| row.try_get(0)).transpose()? {
        Some(true) => {}
        Some(false) | None => return Ok(Vec::new()),
    }
    let rows = client.query_typed(LIST, &[]).await?;
    rows.iter().map(Outbox::read).collect()
}
