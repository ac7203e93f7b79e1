//! A connection whose statements find by name only what the server brings along.
//!
//! A role that may create schemas can put operators, types and functions of its own where the
//! search path of others looks, and the better match wins: `=` for two columns of a type that the
//! server compares by a polymorphic operator. Each statement runs with `pg_catalog` alone in the
//! path, and names all else with its schema. The path holds for one transaction: behind a
//! transaction pooler the session is somebody else's next.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join3;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

/// Begins a transaction in which nothing of others is found by name.
const BEGIN: &str = "begin; set local search_path = pg_catalog, pg_temp";

/// A connection to a database, which is also the driver's.
pub struct Connection {
    client: Client,
    /// The caller has begun a transaction.
    in_transaction: AtomicBool,
}

impl Connection {
    pub fn new(client: Client) -> Self {
        Connection {
            client,
            in_transaction: AtomicBool::new(false),
        }
    }

    /// Returns the driver's connection, whose statements have the search path of the role: for a
    /// database that is the caller's own.
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Returns the rows of a statement, which is a transaction of its own unless one has begun. It
    /// is sent together with what begins and ends that: one round trip.
    pub async fn query_typed(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.alone(self.client.query_typed(sql, arguments)).await
    }

    /// Returns the one row of such a statement.
    pub async fn query_typed_one(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let row = self.client.query_typed_one(sql, arguments);
        self.alone(row).await
    }

    /// Returns the one row of a procedure that ends transactions by itself.
    pub async fn call(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        self.client.query_typed_one(sql, arguments).await
    }

    async fn alone<T>(
        &self,
        statement: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if self.in_transaction.load(Ordering::SeqCst) {
            return statement.await;
        }
        let (begun, answer, ended) = join3(
            self.client.batch_execute(BEGIN),
            statement,
            // Of a transaction that has failed it is a rollback.
            self.client.batch_execute("commit"),
        )
        .await;
        begun?;
        let answer = answer?;
        ended?;
        Ok(answer)
    }

    /// Begins a transaction of several statements.
    pub async fn begin(&self) -> Result<(), Error> {
        self.client.batch_execute(BEGIN).await?;
        self.in_transaction.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Commits it.
    pub async fn commit(&self) -> Result<(), Error> {
        self.end("commit").await
    }

    /// Undoes it.
    pub async fn roll_back(&self) -> Result<(), Error> {
        self.end("rollback").await
    }

    async fn end(&self, how: &str) -> Result<(), Error> {
        self.in_transaction.store(false, Ordering::SeqCst);
        self.client.batch_execute(how).await
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
