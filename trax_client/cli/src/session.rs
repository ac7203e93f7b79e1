//! A connection to the database that a command asks, and the server's clock at its beginning.

use std::time::SystemTime;

use jiff::tz::TimeZone;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client as Connection, Row};
use trax_client::{Address, Client, Error};

use crate::output::{Moment, Options};
use trax_terminal::Failure;
use trax_terminal::{address, print};

/// An argument of a statement and its type: nothing is prepared, which also works behind a pooler.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

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

    async fn to(config: &Address, options: &Options) -> Result<Self, Failure> {
        let connection = address::connect(config).await?;
        let sql =
            "select pg_catalog.clock_timestamp(), pg_catalog.current_setting('server_version')";
        let row = connection.query_typed_one(sql, &[]).await?;
        if options.verbose {
            let version: String = row.try_get(1)?;
            let address = address::describe(config);
            print::log(
                "trax",
                &format!("connected to {address}, PostgreSQL {version}"),
            );
        }
        let now = row.try_get(0)?;
        Ok(Session { connection, now })
    }

    /// Returns the contract over this connection.
    pub(crate) fn client(&self) -> Client<'_, Connection> {
        Client::new(&self.connection)
    }

    /// Returns the rows of a statement of this crate.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Failure> {
        Ok(self.connection.query_typed(sql, arguments).await?)
    }

    /// Returns the one value of a statement of this crate.
    pub(crate) async fn value<T: for<'r> FromSql<'r>>(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<T, Error> {
        Ok(self
            .connection
            .query_typed_one(sql, arguments)
            .await?
            .try_get(0)?)
    }

    /// Returns a time as PostgreSQL reads it, in the zone of whoever typed it: '2030-01-01 10:00',
    /// 'tomorrow'.
    pub(crate) async fn time(&self, text: &str) -> Result<SystemTime, Failure> {
        self.time_or(text, "give a time: '2030-01-01 10:00', 'tomorrow 10:00'")
            .await
    }

    /// Does the same; the hint shows the accepted forms when this is none.
    async fn time_or(&self, text: &str, hint: &str) -> Result<SystemTime, Failure> {
        // The zone holds for this transaction alone: behind a pooler the next one is somebody
        // else's.
        self.connection.batch_execute("begin").await?;
        let read = self.read_time(text).await;
        let end = if read.is_ok() { "commit" } else { "rollback" };
        self.connection.batch_execute(end).await?;
        read.map_err(|error| match error {
            Error::InvalidArgument(_) => {
                Failure::usage(format!("\"{text}\" is not a time")).hint(hint)
            }
            error => error.into(),
        })
    }

    async fn read_time(&self, text: &str) -> Result<SystemTime, Error> {
        let zone = TimeZone::system();
        if let Some(name) = zone.iana_name() {
            let sql = "select pg_catalog.set_config('TimeZone', z.name, true) \
                       from pg_catalog.pg_timezone_names z where z.name = $1";
            self.connection
                .query_typed(sql, &[(&name, Type::TEXT)])
                .await?;
        }
        self.value("select cast($1 as timestamptz)", &[(&text, Type::TEXT)])
            .await
    }

    /// Does the same, or takes how long ago: '2 h', '30 min'.
    pub(crate) async fn since(&self, text: Option<&str>) -> Result<Option<SystemTime>, Failure> {
        let Some(text) = text else { return Ok(None) };
        // '2 h ago' is a negative interval, and means the same.
        let sql = "select pg_catalog.clock_timestamp() - greatest(i, -i) \
                   from (select cast($1 as interval)) l (i)";
        let length: Result<SystemTime, Error> = self.value(sql, &[(&text, Type::TEXT)]).await;
        match length {
            Ok(at) if text.contains(char::is_alphabetic) => Ok(Some(at)),
            Ok(_) | Err(Error::InvalidArgument(_)) => {
                let hint = "use a time, or an age: '2 h', '30 min'";
                self.time_or(text, hint).await.map(Some)
            }
            Err(error) => Err(error.into()),
        }
    }
}
