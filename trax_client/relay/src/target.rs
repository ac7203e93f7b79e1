//! The target: the side with trax.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Transaction};
use trax_client::{Access, Address, Neighbor, Report};

use crate::row::{Carried, Ended, Entry, Lag, OldKey};
use crate::{Result, Trouble, rows};

const SIDE: &str = "target";
/// How long a batch waits for a lock in the target; the short limit is for a part of a batch that
/// was split because of a lock, and for a row that is tried again.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_millis(500);
pub(crate) const SHORT_LOCK_PATIENCE: Duration = Duration::from_millis(50);
/// The target's errors about a row: invalid or too large values, and in the second list missing
/// features, rights or objects.
const ROW_ERRORS: [&str; 3] = ["22", "23", "54"];
const ROW_ERROR_CODES: [&str; 4] = ["0A000", "42501", "42704", "P0001"];

/// The target's errors that are not about a row: the connection, the server, its state.
const SERVER_ERRORS: [&str; 8] = ["08", "25", "28", "3D", "53", "57", "58", "F0"];
const LOCK_ERROR: &str = "55P03";
/// Errors of these classes that a single row can cause: its statement was canceled, or needed too
/// much memory, or its group is full.
const ROW_CAN_CAUSE: [&str; 3] = ["57014", "53200", "53400"];

/// The outcome of carrying rows together.
pub(crate) enum Outcome {
    Carried(Vec<Carried>),
    /// No row was carried: the target refuses at least one.
    Refused(Report),
    /// No row was carried: at least one cannot be carried now.
    Held(Report),
}

/// A connection to the database with trax, for one source.
pub(crate) struct Target {
    client: Client,
    id: String,
    name: String,
    source: String,
    epoch: i64,
    /// The time limit for an idle transaction.
    patience: Duration,
    /// The position up to which old keys were examined.
    forgotten: (String, String),
}

/// Sorts before every time and key.
const BEGINNING: (&str, &str) = ("-infinity", "00000000-0000-0000-0000-000000000000");

/// Whether the batch of a row is sealed, and stays so.
fn is_sealed(report: &Report) -> bool {
    let message = &report.message;
    report.sqlstate == "55000" && message.starts_with("batch ") && message.ends_with(" is sealed")
}

fn read(error: tokio_postgres::Error) -> Trouble {
    Trouble::of(SIDE, error)
}

impl Target {
    /// Connects to a database that has the relay's schema.
    pub(crate) async fn open(address: &Address, patience: Duration) -> Result<Self> {
        let client = address.connect().await;
        let client = client.map_err(|error| Trouble::of(SIDE, error))?;
        let sql = include_str!("query/target/begin_session.sql");
        let limit = |part| format!("{}ms", (patience / part).as_millis());
        let limits = [
            (&limit(2) as &(dyn ToSql + Sync), Type::TEXT),
            (&limit(4), Type::TEXT),
        ];
        rows(SIDE, &client, sql, &limits).await?;
        for neighbor in [Neighbor::Trax, Neighbor::Relay] {
            let genuine = neighbor.is_in(&client).await;
            genuine.map_err(|error| Trouble::of(SIDE, error))?;
        }
        let mut target = Target {
            client,
            id: String::new(),
            name: String::new(),
            source: String::new(),
            epoch: 0,
            patience,
            forgotten: (BEGINNING.0.to_owned(), BEGINNING.1.to_owned()),
        };
        let (is_router, _, may_keep) = rights(&target.client).await?;
        if is_router || may_keep != Some(true) {
            target.ready().await?;
        }
        let sql = include_str!("query/target/identity.sql");
        let found = rows(SIDE, &target.client, sql, &[]).await?;
        target.id = found[0].try_get(0).map_err(read)?;
        target.name = found[0].try_get(1).map_err(read)?;
        Ok(target)
    }

    /// Begins a new epoch, so that earlier relays of this outbox carry nothing more.
    pub(crate) async fn begin(&mut self, (source, name): (String, String)) -> Result<()> {
        let sql = include_str!("query/target/next_epoch.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&source, Type::TEXT), (&name, Type::TEXT)];
        let next = rows(SIDE, &self.client, sql, &arguments).await?;
        self.epoch = next[0].try_get(0).map_err(read)?;
        self.source = source;
        Ok(())
    }

    /// Succeeds if a valid row could be carried.
    pub(crate) async fn ready(&self) -> Result<()> {
        match rights(&self.client).await? {
            (true, ..) => Err(router()),
            (_, None, _) => Err(Trouble::new("target: trax is not in this database")
                .hint("create extension trax in the target")),
            (_, Some(false), _) => Err(Trouble::new("target: the relay's role may not enqueue")
                .hint(format!(
                    "select trax.grant_access('role', 'producer') in the target{}",
                    Access::KEEPS_BOTH
                ))),
            (.., None) => Err(Trouble::new("target: the tables of the relay are missing")
                .hint("make it: trax relay --target-sql | psql -1 -v ON_ERROR_STOP=1 TARGET")),
            (.., Some(false)) => Err(Trouble::new(
                "target: the relay's role may not use the tables of the relay",
            )
            .hint("select trax_relay.grant_access('role') in the target")),
            (false, Some(true), Some(true)) => Ok(()),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Enqueues jobs for all rows that have none yet, or for no row.
    pub(crate) async fn carry(
        &mut self,
        entries: &[&Entry],
        lock_patience: Duration,
    ) -> Result<Outcome> {
        let failed = match self.carry_together(entries, lock_patience).await? {
            Ok(carried) => return Ok(Outcome::Carried(carried)),
            Err(failed) => failed,
        };
        let report = match failed.as_db_error() {
            Some(error) => Report::from(error),
            None => return Err(read(failed)),
        };
        let is = |classes: &[&str]| {
            classes
                .iter()
                .any(|class| report.sqlstate.starts_with(class))
        };
        if is(&SERVER_ERRORS) && !is(&ROW_CAN_CAUSE) {
            return Err(read(failed));
        }
        if !is(&ROW_ERRORS) && report.sqlstate != LOCK_ERROR {
            // Revoked rights and a missing extension are not caused by a row.
            self.ready().await?;
        }
        Ok(
            if is(&ROW_ERRORS) || is(&ROW_ERROR_CODES) || is_sealed(&report) {
                Outcome::Refused(report)
            } else {
                Outcome::Held(report)
            },
        )
    }

    async fn carry_together(
        &mut self,
        entries: &[&Entry],
        lock_patience: Duration,
    ) -> Result<std::result::Result<Vec<Carried>, tokio_postgres::Error>> {
        let source = self.source.clone();
        let transaction = self.fenced(lock_patience).await?;
        match enqueue(&transaction, &source, entries).await {
            Ok(carried) => Ok(transaction.commit().await.map(|()| carried)),
            Err(error) => {
                if error.as_db_error().is_some() {
                    transaction.rollback().await.map_err(read)?;
                }
                Ok(Err(error))
            }
        }
    }

    /// Begins a transaction that excludes relays with another epoch.
    async fn fenced(&mut self, lock_patience: Duration) -> Result<Transaction<'_>> {
        let transaction = self.client.transaction().await.map_err(read)?;
        // Both settings in one round trip.
        let limits = format!(
            "set local lock_timeout = {}; set local idle_in_transaction_session_timeout = {}",
            lock_patience.min(self.patience / 8).as_millis().max(1),
            self.patience.as_millis()
        );
        let sql = include_str!("query/target/fence.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.source, Type::TEXT), (&self.epoch, Type::INT8)];
        let (limited, found) = tokio::join!(
            transaction.batch_execute(&limits),
            transaction.query_typed(sql, &arguments)
        );
        limited.map_err(read)?;
        if found.map_err(read)?.is_empty() {
            return Err(Trouble::new("another relay has taken over this outbox"));
        }
        Ok(transaction)
    }

    /// Returns the jobs that have ended, or that the target does not have or does not show to this
    /// role.
    pub(crate) async fn ended(&self, open: &[(i64, i64)]) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        let mut parts = vec![open];
        while let Some(part) = parts.pop() {
            let ids: Vec<i64> = part.iter().map(|(id, _)| *id).collect();
            let jobs: Vec<i64> = part.iter().map(|(_, job_id)| *job_id).collect();
            let arguments: [(&(dyn ToSql + Sync), Type); 2] =
                [(&ids, Type::INT8_ARRAY), (&jobs, Type::INT8_ARRAY)];
            let sql = include_str!("query/target/ended.sql");
            let error = match self.client.query_typed(sql, &arguments).await {
                Ok(found) => {
                    let part: Result<Vec<Ended>, _> = found.iter().map(Ended::read).collect();
                    ended.extend(part.map_err(read)?);
                    continue;
                }
                Err(error) => error,
            };
            // A text may contain a character that cannot be sent as UTF-8.
            let code = error.code().map(|code| code.code());
            if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE)
                && !code.is_some_and(|code| code.starts_with("22"))
            {
                return Err(read(error));
            }
            self.ready().await?;
            match part {
                [(id, _)] => ended.push(Ended {
                    id: *id,
                    state: "unknown".to_owned(),
                    output: None,
                    error: error.as_db_error().map(|error| error.message().to_owned()),
                    finished_at: None,
                }),
                _ => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(ended)
    }

    /// Reports the lag, the number of held rows, and the reason for waiting.
    pub(crate) async fn report(&self, lag: &Lag, held: usize, trouble: Option<&str>) -> Result<()> {
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        let arguments: [(&(dyn ToSql + Sync), Type); 7] = [
            (&self.source, Type::TEXT),
            (&self.epoch, Type::INT8),
            (&lag.waiting, Type::INT8),
            (&lag.age, Type::FLOAT8),
            (&lag.refused, Type::INT8),
            (&held, Type::INT8),
            (&trouble, Type::TEXT),
        ];
        let sql = include_str!("query/target/report.sql");
        rows(SIDE, &self.client, sql, &arguments).await.map(drop)
    }

    /// Returns a page of rows carried more than an hour ago; empty at the end of a round.
    pub(crate) async fn old_keys(&mut self) -> Result<Vec<OldKey>> {
        let sql = include_str!("query/target/old_keys.sql");
        let (time, key) = &self.forgotten;
        let arguments: [(&(dyn ToSql + Sync), Type); 3] = [
            (&self.source, Type::TEXT),
            (time, Type::TEXT),
            (key, Type::TEXT),
        ];
        let found = rows(SIDE, &self.client, sql, &arguments).await?;
        let old = |row: &Row| {
            Ok(OldKey {
                id: row.try_get(0)?,
                key: row.try_get(1)?,
                carried_at: row.try_get(2)?,
            })
        };
        let page: Result<Vec<OldKey>, tokio_postgres::Error> = found.iter().map(old).collect();
        let page = page.map_err(read)?;
        self.forgotten = match page.last() {
            Some(last) => (last.carried_at.clone(), last.key.clone()),
            None => (BEGINNING.0.to_owned(), BEGINNING.1.to_owned()),
        };
        Ok(page)
    }

    pub(crate) async fn forget(&mut self, keys: &[String]) -> Result<()> {
        let transaction = self.fenced(LOCK_PATIENCE).await?;
        let sql = include_str!("query/target/forget.sql");
        let done = transaction
            .query_typed(sql, &[(&keys, Type::TEXT_ARRAY)])
            .await;
        done.map_err(read)?;
        transaction.commit().await.map_err(read)
    }
}

/// Returns whether the database is a router, whether the role may enqueue, and whether it may use
/// the relay's schema; `None` if that does not exist.
pub(crate) async fn rights(client: &Client) -> Result<(bool, Option<bool>, Option<bool>)> {
    let is_router = trax_client::is_router(client).await;
    let is_router = is_router.map_err(|error| Trouble::of(SIDE, error))?;
    let sql = include_str!("query/target/ready.sql");
    let found = rows(SIDE, client, sql, &[]).await?;
    let all = |row: &Row| Ok((is_router, row.try_get(0)?, row.try_get(1)?));
    all(&found[0]).map_err(read)
}

impl Ended {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Ended {
            id: row.try_get(0)?,
            state: row.try_get(1)?,
            output: row.try_get(2)?,
            error: row.try_get(3)?,
            finished_at: row.try_get(4)?,
        })
    }
}

/// Returns the trouble for a router: its functions commit on the shards, each call separately.
pub(crate) fn router() -> Trouble {
    Trouble::new(
        "target: this database is a router, whose calls cannot be part of the relay's transaction",
    )
    .hint("specify the shards, each with its own --to: select address from trax_router.shards()")
}

/// Enqueues the rows whose keys are not known, and returns the jobs of all rows.
async fn enqueue(
    transaction: &Transaction<'_>,
    source: &str,
    entries: &[&Entry],
) -> std::result::Result<Vec<Carried>, tokio_postgres::Error> {
    let documents: Vec<&str> = entries
        .iter()
        .filter_map(|entry| entry.document.as_deref().ok())
        .collect();
    let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let arguments: [(&(dyn ToSql + Sync), Type); 2] =
        [(&source, Type::TEXT), (&documents, Type::TEXT_ARRAY)];
    let sql = include_str!("query/target/carry.sql");
    transaction.query_typed(sql, &arguments).await?;
    let sql = include_str!("query/target/jobs.sql");
    let arguments: [(&(dyn ToSql + Sync), Type); 1] = [(&keys, Type::TEXT_ARRAY)];
    // No time limit applies during a commit, so deferred triggers run before it.
    let (found, checked) = tokio::join!(
        transaction.query_typed(sql, &arguments),
        transaction.batch_execute("set constraints all immediate")
    );
    let found = found?;
    checked?;
    let carried = |row: &Row| {
        Ok(Carried {
            id: row.try_get(0)?,
            key: row.try_get(1)?,
            job_id: row.try_get(2)?,
        })
    };
    found.iter().map(carried).collect()
}
