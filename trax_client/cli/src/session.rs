//! A command's connection to the database, and the server's clock at its beginning.

use std::process::ExitCode;
use std::time::SystemTime;

use jiff::tz::TimeZone;
use tokio::sync::OnceCell;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use trax_client::{Address, Client, Error, Report, is_router};

use crate::lock_wait;
use crate::output::{Listed, Moment, Options, Placed};
pub(crate) use crate::shards::Argument;
use crate::shards::Shards;
use trax_terminal::{Connection, FAILED, Failure, duration};
use trax_terminal::{address, print};

/// An open connection.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// The server's clock when the command began, the reference for relative times.
    pub(crate) now: Moment,
    /// The server's process of the connection.
    pid: i32,
    /// The address, if it is a router's; the tables are then read from its shards.
    router: Option<Address>,
    shards: OnceCell<Shards>,
}

impl Session {
    /// Connects to the database that the URL or the environment names. Reports it when the command
    /// waits for a lock.
    pub(crate) async fn open(url: Option<&str>, options: &Options) -> Result<Self, Failure> {
        let config = address::from_environment(url)?;
        let session = Self::to(&config, options).await?;
        lock_wait::report(&config, session.pid);
        Ok(session)
    }

    /// Connects to this address.
    pub(crate) async fn to(config: &Address, options: &Options) -> Result<Self, Failure> {
        let connection = address::connect(config).await?;
        let sql = "select pg_catalog.clock_timestamp(), pg_catalog.current_setting('server_version'), pg_catalog.pg_backend_pid()";
        let row = connection.query_typed_one(sql, &[]).await?;
        if options.verbose {
            let version: String = row.try_get(1)?;
            let address = address::describe(config);
            print::log(
                "trax",
                &format!("connected to {address}, PostgreSQL {version}"),
            );
        }
        let (now, pid) = (row.try_get(0)?, row.try_get(2)?);
        let is_router = is_router(&*connection).await?;
        Ok(Session {
            connection,
            now,
            pid,
            router: is_router.then(|| config.clone()),
            shards: OnceCell::new(),
        })
    }

    /// Returns a typed client on this connection.
    pub(crate) fn client(&self) -> Client<'_, tokio_postgres::Client> {
        Client::new(&self.connection)
    }

    /// Returns the server's refusal of all calls, if its library's version differs from that of the
    /// tables.
    pub(crate) async fn of_another_version(&self) -> Result<Option<Report>, Failure> {
        // A router reports this for each shard in its own rows.
        if self.is_router() {
            return Ok(None);
        }
        Ok(of_another_version(&self.connection).await?)
    }

    /// Returns whether the database is a router.
    pub(crate) fn is_router(&self) -> bool {
        self.router.is_some()
    }

    /// Returns the rows of a statement that reads tables. At a router, those of all shards that can
    /// be reached, in shard order.
    pub(crate) async fn find(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let rows = self.find_placed(sql, arguments).await?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Returns the records of such a statement. At a router, with their shards and merged into one
    /// order.
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

    /// Returns the databases with the tables: this one, or the shards that can be reached.
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

    /// At a router, returns the shards that can be reached now, without reporting the others.
    pub(crate) async fn shards_now(&self) -> Result<Option<Shards>, Failure> {
        match &self.router {
            Some(address) => Shards::of(&self.connection, address).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the failure for an object that does not exist. If a shard is unavailable, limits it
    /// to the shards that answer.
    pub(crate) fn absent(&self, failure: Failure) -> Failure {
        match self.is_incomplete() {
            true => Failure::new(format!("{failure} on the shards that answer")),
            false => failure,
        }
    }

    /// Returns the exit code of a listing: failed if an unavailable shard may have more.
    pub(crate) fn outcome(&self) -> ExitCode {
        match self.is_incomplete() {
            true => ExitCode::from(FAILED),
            false => ExitCode::SUCCESS,
        }
    }

    /// Returns whether a shard is unavailable.
    pub(crate) fn is_incomplete(&self) -> bool {
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

    /// Returns the value of a statement of this crate.
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

    /// Parses a time as PostgreSQL does, in the user's time zone: '2030-01-01 10:00', 'tomorrow';
    /// or a length from now: '5 min'.
    pub(crate) async fn time(&self, text: &str) -> Result<SystemTime, Failure> {
        if text.contains(char::is_alphabetic)
            && let Ok(length) = duration(text)
        {
            let sql = "select pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $1)";
            let seconds = length.as_secs_f64();
            return Ok(self.value(sql, &[(&seconds, Type::FLOAT8)]).await?);
        }
        let hint =
            "give a time: '2030-01-01 10:00', 'tomorrow 10:00'; or a length from now: '5 min'";
        self.time_or(text, hint).await
    }

    /// Parses a time. `hint` lists the accepted forms for the error.
    async fn time_or(&self, text: &str, hint: &str) -> Result<SystemTime, Failure> {
        // The time zone is set for this transaction only: behind a pooler the session is shared.
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

    /// Parses a time, or an age: '2 h', '30 min'.
    pub(crate) async fn since(&self, text: Option<&str>) -> Result<Option<SystemTime>, Failure> {
        let Some(text) = text else { return Ok(None) };
        // '2 h ago' is a negative interval with the same meaning.
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

/// Returns the server's refusal of all calls, if its library's version differs from that of the
/// tables. Calls a function that reads nothing, and that every version has.
pub(crate) async fn of_another_version(
    database: &tokio_postgres::Client,
) -> Result<Option<Report>, Error> {
    let sql = "select from trax.preview_cron(expression => '@hourly', count => 1)";
    match database.query_typed(sql, &[]).await {
        Ok(_) => Ok(None),
        Err(error) => match Error::from(error) {
            Error::WrongState(report) => Ok(Some(report)),
            // The command's own call is refused, too.
            Error::NotPermitted(_) => Ok(None),
            error => Err(error),
        },
    }
}
