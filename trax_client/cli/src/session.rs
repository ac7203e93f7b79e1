//! A connection to the database that a command asks, and the server's clock at its beginning.

use std::process::ExitCode;
use std::time::SystemTime;

use jiff::tz::TimeZone;
use tokio::sync::OnceCell;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use trax_client::{Address, Client, Error, Report, is_router};

use crate::output::{Listed, Moment, Options, Placed};
pub(crate) use crate::shards::Argument;
use crate::shards::Shards;
use trax_terminal::{Connection, FAILED, Failure};
use trax_terminal::{address, print};

/// An open connection.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// The server's clock when the command began: what relative times are relative to.
    pub(crate) now: Moment,
    /// The address, when that is a router's: what tables have is in its shards.
    router: Option<Address>,
    shards: OnceCell<Shards>,
}

impl Session {
    /// Connects to the database that the url or the environment names.
    pub(crate) async fn open(url: Option<&str>, options: &Options) -> Result<Self, Failure> {
        let config = address::from_environment(url)?;
        Self::to(&config, options).await
    }

    /// Connects to this address.
    pub(crate) async fn to(config: &Address, options: &Options) -> Result<Self, Failure> {
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
        let is_router = is_router(&*connection).await?;
        Ok(Session {
            connection,
            now,
            router: is_router.then(|| config.clone()),
            shards: OnceCell::new(),
        })
    }

    /// Returns the contract over this connection.
    pub(crate) fn client(&self) -> Client<'_, tokio_postgres::Client> {
        Client::new(&self.connection)
    }

    /// Returns how the server refuses all calls if its library is of another version than the
    /// tables.
    pub(crate) async fn of_another_version(&self) -> Result<Option<Report>, Failure> {
        // Rows of a router say of each shard how it is.
        if self.is_router() {
            return Ok(None);
        }
        Ok(of_another_version(&self.connection).await?)
    }

    /// Returns whether the database is a router.
    pub(crate) fn is_router(&self) -> bool {
        self.router.is_some()
    }

    /// Returns the rows of a statement that reads tables: at a router, of all shards that can be
    /// reached, one after the other.
    pub(crate) async fn find(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let rows = self.find_placed(sql, arguments).await?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Returns what such a statement lists; at a router, with the shards and in one order.
    pub(crate) async fn list<R: Listed>(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Placed<R>>, Failure> {
        Ok(Placed::read(&self.find_placed(sql, arguments).await?)?)
    }

    async fn find_placed(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<(Option<i32>, Row)>, Failure> {
        match self.shards().await? {
            Some(shards) => shards.find(sql, arguments).await,
            None => {
                let rows = self.rows(sql, arguments).await?;
                Ok(rows.into_iter().map(|row| (None, row)).collect())
            }
        }
    }

    /// Returns the databases that have the tables: this one, or the shards that can be reached.
    pub(crate) async fn databases(&self) -> Result<Vec<&Connection>, Failure> {
        Ok(match self.shards().await? {
            Some(shards) => shards.connections().collect(),
            None => vec![&self.connection],
        })
    }

    async fn shards(&self) -> Result<Option<&Shards>, Failure> {
        let Some(address) = &self.router else {
            return Ok(None);
        };
        let opened = async || {
            let shards = Shards::of(&self.connection, address).await?;
            for failure in shards.away() {
                failure.report();
            }
            Ok(shards)
        };
        self.shards.get_or_try_init(opened).await.map(Some)
    }

    /// Returns the shards that can be reached now, at a router; nothing is reported.
    pub(crate) async fn shards_now(&self) -> Result<Option<Shards>, Failure> {
        match &self.router {
            Some(address) => Shards::of(&self.connection, address).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the failure that something does not exist; when a shard is away, as far as is known.
    pub(crate) fn absent(&self, failure: Failure) -> Failure {
        match self.is_incomplete() {
            true => Failure::new(format!("{failure} on the shards that answer")),
            false => failure,
        }
    }

    /// Returns the exit code of a command that has shown all it found: failed when a shard that is
    /// away may have more.
    pub(crate) fn outcome(&self) -> ExitCode {
        match self.is_incomplete() {
            true => ExitCode::from(FAILED),
            false => ExitCode::SUCCESS,
        }
    }

    fn is_incomplete(&self) -> bool {
        let shards = self.shards.get();
        shards.is_some_and(|shards| !shards.away().is_empty())
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
        self.connection.begin().await?;
        let read = self.read_time(text).await;
        match read {
            Ok(_) => self.connection.commit().await?,
            Err(_) => self.connection.roll_back().await?,
        }
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

/// Returns how the server refuses all calls if its library is of another version than the tables:
/// asks one that reads nothing.
pub(crate) async fn of_another_version(
    database: &tokio_postgres::Client,
) -> Result<Option<Report>, Error> {
    let sql = "select from trax.preview_cron(expression => '@hourly', count => 1)";
    match database.query_typed(sql, &[]).await {
        Ok(_) => Ok(None),
        Err(error) => match Error::from(error) {
            Error::WrongState(report) => Ok(Some(report)),
            error => Err(error),
        },
    }
}
