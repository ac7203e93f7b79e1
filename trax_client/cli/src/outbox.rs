//! The outboxes whose jobs a database receives, as reported by their relays. `trax metrics` and
//! `trax doctor` show their progress. At a router, relays report to its shards.

use trax_client::{Address, Error, Neighbor};
use trax_terminal::outbox::{LIST, Outbox, READABLE};
use trax_terminal::{Connection, Failure};

use crate::shards::Shards;

/// Outboxes, and the errors of databases that could not be queried.
#[derive(Default)]
pub(crate) struct Outboxes {
    pub(crate) found: Vec<Outbox>,
    pub(crate) away: Vec<Failure>,
}

impl Outboxes {
    /// Returns the outboxes of the database, or at a router of all shards that can be reached.
    pub(crate) async fn of(database: &Connection, address: &Address) -> Result<Self, Failure> {
        let mut outboxes = Self::default();
        let Some(shards) = Shards::behind(database, address).await? else {
            outboxes.add(database, None).await?;
            return Ok(outboxes);
        };
        for (number, shard) in shards.numbered() {
            if let Err(failure) = outboxes.add(shard, Some(number)).await {
                outboxes.away.push(failure.at(&format!("shard {number}")));
            }
        }
        outboxes.away.extend(shards.into_away());
        Ok(outboxes)
    }

    /// Adds the outboxes of a database. There are none if it has no relay schema, or this role may
    /// not read it.
    async fn add(&mut self, database: &Connection, shard: Option<i32>) -> Result<(), Failure> {
        match Neighbor::Relay.is_in(&**database).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error @ Error::NotPermitted(_)) => {
                let failure = Failure::from(error);
                self.away.push(match shard {
                    Some(number) => failure.at(&format!("shard {number}")),
                    None => failure,
                });
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let readable = database.query_typed(READABLE, &[]).await?;
        match readable.first().map(|row| row.try_get(0)).transpose()? {
            Some(true) => {}
            Some(false) | None => return Ok(()),
        }
        for row in database.query_typed(LIST, &[]).await? {
            self.found.push(Outbox::read(&row, shard)?);
        }
        Ok(())
    }
}
