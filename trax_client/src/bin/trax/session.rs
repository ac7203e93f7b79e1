//! A connection to the database that a command asks, and the server's clock at its beginning.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client as Connection, Config, Row};
use trax_client::Client;

use crate::failure::Failure;
use crate::output::{Moment, Options};
use crate::{address, print};

/// An open connection.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// The server's clock when the command began: what relative times are relative to.
    pub(crate) now: Moment,
}

impl Session {
    /// Connects to the database that the url or the environment names.
    pub(crate) async fn open(url: Option<&str>, options: &Options) -> Result<Self, Failure> {
        let config = address::from_environment(url)?;
        Self::to(&config, options).await
    }

    async fn to(config: &Config, options: &Options) -> Result<Self, Failure> {
        let connection = address::connect(config).await?;
        let sql =
            "select pg_catalog.clock_timestamp(), pg_catalog.current_setting('server_version')";
        let row = connection.query_typed_one(sql, &[]).await?;
        if options.verbose {
            let version: String = row.try_get(1)?;
            let address = address::describe(config);
            print::log("trax", &format!("asks {address}, PostgreSQL {version}"));
        }
        let now = row.try_get(0)?;
        Ok(Session { connection, now })
    }

    /// The contract over this connection.
    pub(crate) fn client(&self) -> Client<'_, Connection> {
        Client::new(&self.connection)
    }

    /// The rows of a statement of this crate.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        Ok(self.connection.query_typed(sql, arguments).await?)
    }
}
