//! Records of several databases in one list.

use serde::Serialize;
use tokio_postgres::Row;

use super::{Cell, Column, Moment, Record};

/// A record that a row of a statement becomes.
pub(crate) trait Listed: Record + Sized {
    /// What the list is ordered by: what the statement orders by, or its like where that means
    /// nothing beyond one database.
    type Order: Ord;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error>;

    fn order(&self) -> Self::Order;
}

/// A record, and at a router the number of the shard that it is from.
#[derive(Serialize)]
pub(crate) struct Placed<R> {
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<i32>,
    #[serde(flatten)]
    record: R,
}

impl<R: Listed> Placed<R> {
    /// Returns the records of ordered rows; those of several shards in one order.
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
