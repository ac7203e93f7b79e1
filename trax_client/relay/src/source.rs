//! The side with the outbox.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use trax_client::Address;

use crate::target::{Ended, Outcome};
use crate::{Result, Trouble, rows};

const SIDE: &str = "source";

/// A row that waits.
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) key: String,
    /// The whole row as JSON.
    pub(crate) document: String,
}

/// How much waits, and for how long, in seconds; how much was refused.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Lag {
    pub(crate) waiting: i64,
    pub(crate) age: f64,
    pub(crate) refused: i64,
}

/// A connection to the database with the outbox.
pub(crate) struct Source {
    client: Client,
    woken: Arc<Notify>,
    is_asleep: Option<bool>,
    /// The last row whose result was asked for.
    asked: i64,
}

fn read(error: tokio_postgres::Error) -> Trouble {
    Trouble::of(SIDE, error)
}

impl Source {
    pub(crate) async fn open(address: &Address) -> Result<Self> {
        let woken = Arc::new(Notify::new());
        let wake = Arc::clone(&woken);
        let client = address.connect_hearing(move |_| wake.notify_one()).await;
        let client = client.map_err(|error| Trouble::of(SIDE, error))?;
        let listening = client.batch_execute("listen trax_outbox").await;
        listening.map_err(read)?;
        Ok(Source {
            client,
            woken,
            is_asleep: None,
            asked: 0,
        })
    }

    /// Returns whether this connection is the only one that carries.
    pub(crate) async fn take_lock(&self) -> Result<bool> {
        let sql = include_str!("query/source/take_lock.sql");
        let found = self.client.query_typed(sql, &[]).await;
        let found = found.map_err(|error| {
            let code = error.code().map(|code| code.code().to_owned());
            let trouble = Trouble::of(SIDE, error);
            match code.as_deref() {
                Some("42P01" | "3F000") => trouble.hint(
                    "there is no outbox; make it: trax relay --outbox-sql | psql -1 -v ON_ERROR_STOP=1 SOURCE",
                ),
                Some("42501") => trouble
                    .hint("as the owner of the outbox: select trax_outbox.grant_access('role', 'relay')"),
                _ => trouble,
            }
        })?;
        found[0].try_get(0).map_err(read)
    }

    /// Returns which outbox this is, and the name of its database.
    pub(crate) async fn identity(&self) -> Result<(String, String)> {
        let sql = include_str!("query/source/identity.sql");
        let found = rows(SIDE, &self.client, sql, &[]).await?;
        let both = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        both(&found[0]).map_err(read)
    }

    /// Returns the first rows that are visible now.
    pub(crate) async fn waiting(&self, batch: i64) -> Result<Vec<Entry>> {
        let sql = include_str!("query/source/waiting.sql");
        let found = rows(SIDE, &self.client, sql, &[(&batch, Type::INT8)]).await?;
        let entry = |row: &Row| {
            Ok(Entry {
                id: row.try_get(0)?,
                key: row.try_get(1)?,
                document: row.try_get(2)?,
            })
        };
        let entries: Result<_, tokio_postgres::Error> = found.iter().map(entry).collect();
        entries.map_err(read)
    }

    /// Says whether the relay wants notifications; returns whether that is new.
    pub(crate) async fn set_asleep(&mut self, asleep: bool) -> Result<bool> {
        if self.is_asleep == Some(asleep) {
            return Ok(false);
        }
        let sql = include_str!("query/source/set_asleep.sql");
        rows(SIDE, &self.client, sql, &[(&asleep, Type::BOOL)]).await?;
        self.is_asleep = Some(asleep);
        Ok(true)
    }

    /// Waits for a notification, the end of the connection or the time: each is a reason to look.
    pub(crate) async fn sleep(&self, time: Duration) {
        timeout(time, self.woken.notified()).await.ok();
    }

    /// Takes rows out of those that wait, each to where its outcome says.
    pub(crate) async fn settle(&mut self, outcomes: &[Outcome], results: bool) -> Result<()> {
        let (mut ids, mut keys, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        let transaction = self.client.transaction().await.map_err(read)?;
        for Outcome { id, key, became } in outcomes {
            match became {
                Ok(job_id) => {
                    ids.push(*id);
                    keys.push(key.as_str());
                    jobs.push(*job_id);
                }
                Err(report) => {
                    let sql = include_str!("query/source/refuse.sql");
                    let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 6] = [
                        (id, Type::INT8),
                        (key, Type::TEXT),
                        (&report.sqlstate, Type::TEXT),
                        (&report.message, Type::TEXT),
                        (&report.detail, Type::TEXT),
                        (&report.hint, Type::TEXT),
                    ];
                    let done = transaction.query_typed(sql, &arguments).await;
                    done.map_err(read)?;
                }
            }
        }
        let sql = include_str!("query/source/settle.sql");
        let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
            (&ids, Type::INT8_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&jobs, Type::INT8_ARRAY),
            (&results, Type::BOOL),
        ];
        let done = transaction.query_typed(sql, &arguments).await;
        done.map_err(read)?;
        transaction.commit().await.map_err(read)
    }

    /// Returns the jobs of the next rows that have no result yet, around and around.
    pub(crate) async fn unfinished(&mut self) -> Result<Vec<i64>> {
        let sql = include_str!("query/source/unfinished.sql");
        let found = rows(SIDE, &self.client, sql, &[(&self.asked, Type::INT8)]).await?;
        self.asked = match found.last() {
            Some(row) => row.try_get(0).map_err(read)?,
            None => 0,
        };
        let ids: Result<_, tokio_postgres::Error> =
            found.iter().map(|row| row.try_get(1)).collect();
        ids.map_err(read)
    }

    pub(crate) async fn finish(&self, ended: &[Ended]) -> Result<()> {
        let sql = include_str!("query/source/finish.sql");
        for job in ended {
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] = [
                (&job.job_id, Type::INT8),
                (&job.state, Type::TEXT),
                (&job.output, Type::TEXT),
                (&job.error, Type::TEXT),
                (&job.finished_at, Type::TEXT),
            ];
            rows(SIDE, &self.client, sql, &arguments).await?;
        }
        Ok(())
    }

    /// Returns the keys whose rows are not here.
    pub(crate) async fn without_row(&self, keys: Vec<(i64, String)>) -> Result<Vec<String>> {
        let sql = include_str!("query/source/still_there.sql");
        let ids: Vec<i64> = keys.iter().map(|(id, _)| *id).collect();
        let found = rows(SIDE, &self.client, sql, &[(&ids, Type::INT8_ARRAY)]).await?;
        let there: Result<HashSet<String>, _> = found.iter().map(|row| row.try_get(0)).collect();
        let there = there.map_err(read)?;
        let keys = keys.into_iter().map(|(_, key)| key);
        Ok(keys.filter(|key| !there.contains(key)).collect())
    }

    pub(crate) async fn lag(&self) -> Result<Lag> {
        let sql = include_str!("query/source/lag.sql");
        let found = rows(SIDE, &self.client, sql, &[]).await?;
        Ok(Lag {
            waiting: found[0].try_get(0).map_err(read)?,
            age: found[0].try_get(1).map_err(read)?,
            refused: found[0].try_get(2).map_err(read)?,
        })
    }
}
