//! A small connection pool, and the transactions of pages and acts.
//!
//! Invariants: the user's role and name are set for one transaction. A connection is reused only
//! after commit or rollback, and otherwise closed. No state of one request reaches the next.

use std::sync::Mutex;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use trax_client::{Address, Neighbor, is_router};

use crate::identity::Person;
use crate::trouble::Trouble;

/// How long a request waits for a connection, and for connecting.
const PATIENCE: Duration = Duration::from_secs(5);

const BEGIN: &str = include_str!("query/begin.sql");

/// An argument of a statement and its type. Nothing is prepared, so statements work behind a
/// pooler.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// The purpose of a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'t> {
    Read,
    /// The actor, as `trax.audit` shows it.
    Act(&'t str),
}

/// The connections.
pub(crate) struct Pool {
    address: Address,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
}

/// A transaction.
pub(crate) struct Work<'p> {
    pool: &'p Pool,
    client: Client,
    _place: SemaphorePermit<'p>,
}

impl Pool {
    pub(crate) fn new(address: Address, connections: usize) -> Self {
        Pool {
            address,
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(connections.max(1)),
        }
    }

    /// Begins a transaction as a user.
    pub(crate) async fn begin(
        &self,
        person: &Person,
        purpose: Purpose<'_>,
    ) -> Result<Work<'_>, Trouble> {
        let place = timeout(PATIENCE, self.places.acquire()).await;
        let Ok(Ok(place)) = place else {
            return Err(Trouble::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests wait for the database",
            ));
        };
        let kept = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        if let Some(client) = kept.filter(|client| !client.is_closed()) {
            match start(&client, person, purpose).await {
                Ok(()) => {
                    return Ok(Work {
                        pool: self,
                        client,
                        _place: place,
                    });
                }
                // The server was restarted, so the other idle connections are broken too.
                Err(trouble) if trouble.disconnected => self.forget(),
                Err(trouble) => return Err(trouble),
            }
        }
        let client = match timeout(PATIENCE, self.address.connect()).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(Trouble::unknown(error)),
            Err(_) => return Err(Trouble::unknown("no connection within 5 s")),
        };
        let genuine = timeout(PATIENCE, Neighbor::Trax.is_in(&client)).await;
        genuine.map_err(|_| Trouble::unknown("no answer within 5 s"))??;
        start(&client, person, purpose).await?;
        Ok(Work {
            pool: self,
            client,
            _place: place,
        })
    }

    fn forget(&self) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.clear();
        }
    }
}

async fn start(client: &Client, person: &Person, purpose: Purpose<'_>) -> Result<(), Trouble> {
    let (begin, limit, program) = match purpose {
        Purpose::Read => (
            "begin isolation level repeatable read read only",
            "5s",
            None,
        ),
        Purpose::Act(program) => ("begin isolation level read committed", "30s", Some(program)),
    };
    let work = async {
        client.batch_execute(begin).await?;
        let role = person.role.as_deref();
        let arguments: [Argument<'_>; 3] = [
            (&limit, Type::TEXT),
            (&program, Type::TEXT),
            (&role, Type::TEXT),
        ];
        client.query_typed(BEGIN, &arguments).await?;
        Ok(())
    };
    let begun: Result<Result<(), tokio_postgres::Error>, _> = timeout(PATIENCE, work).await;
    begun
        .map_err(|_| Trouble::unknown("no answer within 5 s"))?
        .map_err(Trouble::from)
}

impl Work<'_> {
    pub(crate) async fn rows(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Trouble> {
        // The server ends a slow statement, unless it has become unreachable.
        let limit = Duration::from_secs(40);
        match timeout(limit, self.client.query_typed(sql, arguments)).await {
            Ok(rows) => Ok(rows?),
            Err(_) => Err(Trouble::unknown("no answer within 40 s")),
        }
    }

    /// Returns whether the database receives jobs of outboxes, and the role may read how far their
    /// relays are.
    pub(crate) async fn reads_relays(&self) -> Result<bool, Trouble> {
        match timeout(PATIENCE, Neighbor::Relay.is_in(&self.client)).await {
            Ok(Ok(true)) => {}
            // Objects of a role that cannot be trusted are not read.
            Ok(Ok(false) | Err(trax_client::Error::NotPermitted(_))) => return Ok(false),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Trouble::unknown("no answer within 5 s")),
        }
        let rows = self.rows(trax_terminal::outbox::READABLE, &[]).await?;
        Ok(rows
            .first()
            .map(|row| row.try_get(0))
            .transpose()?
            .flatten()
            == Some(true))
    }

    /// Returns whether the database is a router.
    pub(crate) async fn is_router(&self) -> Result<bool, Trouble> {
        match timeout(PATIENCE, is_router(&self.client)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Trouble::unknown("no answer within 5 s")),
        }
    }

    /// Ends the transaction and keeps the connection.
    pub(crate) async fn commit(self) -> Result<(), Trouble> {
        self.end("commit").await
    }

    /// Rolls the transaction back and keeps the connection.
    pub(crate) async fn rollback(self) -> Result<(), Trouble> {
        self.end("rollback").await
    }

    async fn end(self, how: &str) -> Result<(), Trouble> {
        match timeout(Duration::from_secs(40), self.client.batch_execute(how)).await {
            Ok(ended) => ended?,
            Err(_) => return Err(Trouble::unknown("no answer within 40 s")),
        }
        if let Ok(mut idle) = self.pool.idle.lock() {
            idle.push(self.client);
        }
        Ok(())
    }
}
