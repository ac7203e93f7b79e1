//! A connection whose statements resolve unqualified names only to built-in objects.
//!
//! A role that may create schemas can add operators, types and functions to a schema in another
//! role's search path, where a better match wins: for example `=` for two columns of a type that
//! the server compares by a polymorphic operator. Each statement therefore runs with only
//! `pg_catalog` in the path and qualifies all other names. The path is set per transaction, as
//! behind a transaction pooler the session is shared.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join3;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

/// Begins a transaction that resolves unqualified names only to built-in objects.
const BEGIN: &str = "begin; set local search_path = pg_catalog, pg_temp";

/// A database connection, which dereferences to the driver's client.
pub struct Connection {
    client: Client,
    /// Whether the caller has begun a transaction.
    in_transaction: AtomicBool,
}

impl Connection {
    pub fn new(client: Client) -> Self {
        Connection {
            client,
            in_transaction: AtomicBool::new(false),
        }
    }

    /// Returns the driver's client, whose statements use the search path of the role; for a
    /// database that the caller owns.
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Returns the rows of a statement, which runs in its own transaction unless one has begun. The
    /// transaction's commands are sent together with it, in one round trip.
    pub async fn query_typed(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.alone(self.client.query_typed(sql, arguments)).await
    }

    /// Returns the only row of such a statement.
    pub async fn query_typed_one(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let row = self.client.query_typed_one(sql, arguments);
        self.alone(row).await
    }

    /// Returns the only row of a procedure that ends transactions itself.
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
            // In a failed transaction, commit is a rollback.
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

    /// Commits the transaction.
    pub async fn commit(&self) -> Result<(), Error> {
        self.end("commit").await
    }

    /// Rolls the transaction back.
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
