//! The shards of a router, and statements that run on each.

use futures_util::future::join_all;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use trax_client::{Address, is_router};
use trax_terminal::{Connection, Failure, address};

/// An argument of a statement and its type. Nothing is prepared, so statements work behind a
/// pooler.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

const SHARDS: &str = "select s.number, s.address, s.closed from trax_router.shards() s";

/// Connections to the shards that can be reached.
pub(crate) struct Shards {
    reached: Vec<(i32, Connection)>,
    away: Vec<Failure>,
}

impl Shards {
    /// Connects to all shards of a router concurrently.
    pub(crate) async fn of(router: &Connection, address: &Address) -> Result<Self, Failure> {
        let rows = router.query_typed(SHARDS, &[]).await?;
        let opened = rows.iter().map(|row| async {
            let number: i32 = row.try_get(0)?;
            Ok::<_, Failure>((number, open(row, address).await))
        });
        let mut shards = Shards {
            reached: Vec::new(),
            away: Vec::new(),
        };
        for shard in join_all(opened).await {
            match shard? {
                (number, Ok(connection)) => shards.reached.push((number, connection)),
                (number, Err(failure)) => {
                    let failure = failure.at(&format!("shard {number}"));
                    shards.away.push(failure);
                }
            }
        }
        Ok(shards)
    }

    /// Connects to the shards if the database is a router.
    pub(crate) async fn behind(
        database: &Connection,
        address: &Address,
    ) -> Result<Option<Self>, Failure> {
        match is_router(&**database).await? {
            true => Self::of(database, address).await.map(Some),
            false => Ok(None),
        }
    }

    /// Returns the rows of a statement with the numbers of their shards, in shard order.
    ///
    /// # Errors
    /// If a shard refuses the statement.
    pub(crate) async fn find(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<(Option<i32>, Row)>, Failure> {
        let answers = self.reached.iter().map(|(number, connection)| async move {
            let rows = connection.query_typed(sql, arguments).await;
            rows.map(|rows| rows.into_iter().map(|row| (Some(*number), row)))
                .map_err(|error| Failure::from(error).at(&format!("shard {number}")))
        });
        let mut found = Vec::new();
        for rows in join_all(answers).await {
            found.extend(rows?);
        }
        Ok(found)
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.numbered().map(|(_, connection)| connection)
    }

    /// Returns the connections with the numbers of their shards.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (i32, &Connection)> {
        let reached = self.reached.iter();
        reached.map(|(number, connection)| (*number, connection))
    }

    /// Returns the errors of unavailable shards.
    pub(crate) fn away(&self) -> &[Failure] {
        &self.away
    }

    pub(crate) fn into_away(self) -> Vec<Failure> {
        self.away
    }
}

async fn open(shard: &Row, router: &Address) -> Result<Connection, Failure> {
    let (text, closed): (&str, Option<&str>) = (shard.try_get(1)?, shard.try_get(2)?);
    if let Some(why) = closed {
        return Err(Failure::new(format!("closed: {why}")));
    }
    let shard: Address = text.parse()?;
    address::connect(&shard.completed_by(router)).await
}
