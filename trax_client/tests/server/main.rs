//! The client against real servers. A single binary: one link.

mod calls;
mod declared;
mod example;
mod handler;
mod json;
mod many;
mod producer;
mod refusal;
mod steps;
mod testkit;
mod wake;
mod worker;

use std::error::Error;
use std::time::{Duration, Instant};

use trax_client::testkit::{Database, Server};
use trax_client::tokio_postgres::Client as Connection;
use trax_client::{Summary, Worker};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const DEADLINE: Duration = Duration::from_secs(90);

/// A server with a database, and a connection to it.
struct Fixture {
    _server: Server,
    database: Database,
    connection: Connection,
}

impl Fixture {
    async fn new(name: &str) -> Result<Self> {
        let server = Server::options().not_preloaded().fast().start()?;
        let database = server.database(name).await?;
        let connection = database.connect().await?;
        Ok(Fixture {
            _server: server,
            database,
            connection,
        })
    }

    fn worker(&self) -> Worker {
        Worker::new(self.database.config())
            .without_signals()
            .on_event(|_| ())
            .poll_interval(Duration::from_millis(20))
    }
}

/// Runs the jobs that are due.
async fn run(worker: Worker) -> Result<Summary> {
    Ok(tokio::time::timeout(DEADLINE, worker.until_empty().run()).await??)
}

/// Waits until `sql` returns true.
async fn until(connection: &Connection, sql: &str) -> Result {
    let begun = Instant::now();
    while begun.elapsed() < DEADLINE {
        if connection.query_one(sql, &[]).await?.get(0) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("never became true: {sql}").into())
}
