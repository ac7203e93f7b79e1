//! Records of several databases in one list.

use serde::Serialize;
use tokio_postgres::Row;

use super::{Cell, Column, Moment, Record};

/// A record that is read from a row of a statement.
pub(crate) trait Listed: Record + Sized {
    /// The sort key of the list: the statement's, or an equivalent that is comparable across
    /// databases.
    type Order: Ord;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error>;

    fn order(&self) -> Self::Order;
}

/// A record, and at a router the number of its shard.
#[derive(Serialize)]
pub(crate) struct Placed<R> {
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<i32>,
    #[serde(flatten)]
    pub(crate) record: R,
}

impl<R: Listed> Placed<R> {
    /// Returns the records of ordered rows. Those of several shards are merged into one order.
    pub(crate) fn read(rows: &[(Option<i32>, Row)]) -> Result<Vec<Self>, tokio_postgres::Error> {
        let mut records: Vec<Self> = rows
            .iter()
            .map(|(shard, row)| {
                let (shard, record) = (*shard, R::read(row)?);
                Ok(Placed { shard, record })
            })
            .collect::<Result<_, _>>()?;
        if records.iter().any(|placed| placed.shard.is_some()) {
            records.sort_by_cached_key(|placed| placed.record.order());
        }
        Ok(records)
    }
}

impl<R: Record> Record for Placed<R> {
    const COLUMNS: &'static [Column] = R::COLUMNS;

    fn cells(&self, now: Moment) -> Vec<Cell> {
        self.record.cells(now)
    }

    fn key(&self) -> String {
        self.record.key()
    }

    fn shard(&self) -> Option<i32> {
        self.shard
    }
}
