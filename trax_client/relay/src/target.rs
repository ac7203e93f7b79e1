//! The side with trax.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Transaction};
use trax_client::{Address, Report};

use crate::source::{Entry, Lag};
use crate::{Result, Trouble, rows};

const SIDE: &str = "target";
/// How the target says that the fault is the row's: bad values, too much, what it does not know,
/// allow or have.
const OF_THE_ROW: [&str; 3] = ["22", "23", "54"];
const OF_THE_ROW_ALONE: [&str; 4] = ["0A000", "42501", "42704", "P0001"];

/// What became of a row: the job, or why the target does not take it.
pub(crate) struct Outcome {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) became: std::result::Result<i64, Report>,
}

/// A job that has ended, or is not known any more.
pub(crate) struct Ended {
    pub(crate) job_id: i64,
    pub(crate) state: String,
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) finished_at: Option<String>,
}

/// A connection to the database with trax, for one source.
pub(crate) struct Target {
    client: Client,
    source: String,
    epoch: i64,
}

fn read(error: tokio_postgres::Error) -> Trouble {
    Trouble::of(SIDE, error)
}

impl Target {
    /// Connects, and makes every relay before this one carry nothing more.
    pub(crate) async fn open(address: &Address, (source, name): (String, String)) -> Result<Self> {
        let client = address.connect().await;
        let client = client.map_err(|error| Trouble::of(SIDE, error))?;
        let may = rows(
            SIDE,
            &client,
            include_str!("query/target/may_enqueue.sql"),
            &[],
        )
        .await?;
        match may.first().map(|row| row.try_get(0)) {
            Some(Ok(true)) => {}
            Some(_) => {
                return Err(Trouble::new("target: the relay's role may not enqueue")
                    .hint("select trax.grant_access('role', 'producer') in the target"));
            }
            None => {
                return Err(Trouble::new("target: trax is not in this database")
                    .hint("create extension trax in the target"));
            }
        }
        let sql = include_str!("query/target/next_epoch.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&source, Type::TEXT), (&name, Type::TEXT)];
        let next = client.query_typed(sql, &arguments).await;
        let next = next.map_err(|error| {
            let code = error.code().map(|code| code.code().to_owned());
            let trouble = Trouble::of(SIDE, error);
            match code.as_deref() {
                Some("42P01" | "3F000") => {
                    trouble.hint("make what the relay keeps there: trax relay --target-sql | psql -1 -v ON_ERROR_STOP=1 TARGET")
                }
                Some("42501") => {
                    trouble.hint("select trax_relay.grant_access('role') in the target")
                }
                _ => trouble,
            }
        })?;
        let epoch = next[0].try_get(0).map_err(read)?;
        Ok(Target {
            client,
            source,
            epoch,
        })
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Makes jobs of rows, those that already have one left out, and returns what became of each.
    pub(crate) async fn carry(&mut self, entries: &[Entry]) -> Result<Vec<Outcome>> {
        let all: Vec<&Entry> = entries.iter().collect();
        let source = self.source.clone();
        let transaction = self.fenced().await?;
        match enqueue(&transaction, &source, &all).await {
            Ok(outcomes) => {
                transaction.commit().await.map_err(read)?;
                return Ok(outcomes);
            }
            Err(error) if refusal(&error).is_some() => {
                transaction.rollback().await.map_err(read)?;
            }
            Err(error) => return Err(read(error)),
        }
        // One of them is refused: each by itself, and the others are carried.
        let mut transaction = self.fenced().await?;
        let mut outcomes = Vec::new();
        for entry in entries {
            let attempt = transaction.transaction().await.map_err(read)?;
            match enqueue(&attempt, &source, &[entry]).await {
                Ok(one) => {
                    attempt.commit().await.map_err(read)?;
                    outcomes.extend(one);
                }
                Err(error) => {
                    let Some(report) = refusal(&error) else {
                        return Err(read(error));
                    };
                    attempt.rollback().await.map_err(read)?;
                    outcomes.push(Outcome {
                        id: entry.id,
                        key: entry.key.clone(),
                        became: Err(report),
                    });
                }
            }
        }
        transaction.commit().await.map_err(read)?;
        Ok(outcomes)
    }

    /// Begins a transaction that no relay with another epoch is beside, before or after.
    async fn fenced(&mut self) -> Result<Transaction<'_>> {
        let transaction = self.client.transaction().await.map_err(read)?;
        let sql = include_str!("query/target/fence.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.source, Type::TEXT), (&self.epoch, Type::INT8)];
        let found = transaction.query_typed(sql, &arguments).await;
        if found.map_err(read)?.is_empty() {
            return Err(Trouble::new("another relay has taken over this outbox"));
        }
        Ok(transaction)
    }

    /// Returns those of the jobs that have ended, or that the target does not have.
    pub(crate) async fn ended(&self, job_ids: &[i64]) -> Result<Vec<Ended>> {
        let sql = include_str!("query/target/ended.sql");
        let found = rows(SIDE, &self.client, sql, &[(&job_ids, Type::INT8_ARRAY)]).await?;
        let ended = |row: &Row| {
            Ok(Ended {
                job_id: row.try_get(0)?,
                state: row.try_get(1)?,
                output: row.try_get(2)?,
                error: row.try_get(3)?,
                finished_at: row.try_get(4)?,
            })
        };
        let ended: Result<_, tokio_postgres::Error> = found.iter().map(ended).collect();
        ended.map_err(read)
    }

    /// Says how far this relay is.
    pub(crate) async fn report(&self, lag: &Lag) -> Result<()> {
        let arguments: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.source, Type::TEXT),
            (&self.epoch, Type::INT8),
            (&lag.waiting, Type::INT8),
            (&lag.age, Type::FLOAT8),
            (&lag.refused, Type::INT8),
        ];
        let sql = include_str!("query/target/report.sql");
        rows(SIDE, &self.client, sql, &arguments).await.map(drop)
    }

    /// Returns ids and keys of rows that were carried more than an hour ago.
    pub(crate) async fn old_keys(&self) -> Result<Vec<(i64, String)>> {
        let sql = include_str!("query/target/old_keys.sql");
        let found = rows(SIDE, &self.client, sql, &[(&self.source, Type::TEXT)]).await?;
        let pair = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        let pairs: Result<_, tokio_postgres::Error> = found.iter().map(pair).collect();
        pairs.map_err(read)
    }

    pub(crate) async fn forget(&mut self, keys: &[String]) -> Result<()> {
        let transaction = self.fenced().await?;
        let sql = include_str!("query/target/forget.sql");
        let done = transaction
            .query_typed(sql, &[(&keys, Type::TEXT_ARRAY)])
            .await;
        done.map_err(read)?;
        transaction.commit().await.map_err(read)
    }
}

/// Enqueues those of the rows whose keys are not known, and returns the jobs of all.
async fn enqueue(
    transaction: &Transaction<'_>,
    source: &str,
    entries: &[&Entry],
) -> std::result::Result<Vec<Outcome>, tokio_postgres::Error> {
    let documents: Vec<&str> = entries
        .iter()
        .map(|entry| entry.document.as_str())
        .collect();
    let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let arguments: [(&(dyn ToSql + Sync), Type); 2] =
        [(&source, Type::TEXT), (&documents, Type::TEXT_ARRAY)];
    let sql = include_str!("query/target/carry.sql");
    transaction.query_typed(sql, &arguments).await?;
    let sql = include_str!("query/target/jobs.sql");
    let found = transaction
        .query_typed(sql, &[(&keys, Type::TEXT_ARRAY)])
        .await?;
    let outcome = |row: &Row| {
        Ok(Outcome {
            id: row.try_get(0)?,
            key: row.try_get(1)?,
            became: Ok(row.try_get(2)?),
        })
    };
    found.iter().map(outcome).collect()
}

/// Returns the error if it is a row's fault, and not the server's or the connection's.
fn refusal(error: &tokio_postgres::Error) -> Option<Report> {
    let report = Report::from(error.as_db_error()?);
    let is_of_the_row = OF_THE_ROW
        .iter()
        .any(|class| report.sqlstate.starts_with(class))
        || OF_THE_ROW_ALONE.contains(&report.sqlstate.as_str());
    is_of_the_row.then_some(report)
}
