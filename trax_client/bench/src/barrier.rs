//! A barrier before the start: every session waits for a lock on the queue.
//!
//! The clock starts when all connections are open and the first claims are sent, so that neither
//! loading nor connecting is measured.

use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;

use super::bench_database::BenchDatabase;
use super::meter::Reading;
use trax_terminal::Failure;

const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Barrier {
    connection: Connection,
}

impl Barrier {
    /// Locks the table against changes.
    pub(crate) async fn raise(bench: &BenchDatabase, table: &str) -> Result<Self, Failure> {
        let connection = bench.connect().await?;
        let sql = format!("begin; lock table {table} in share row exclusive mode");
        connection.batch_execute(&sql).await?;
        Ok(Barrier { connection })
    }

    /// Waits until this many sessions wait for the lock, starts the clock, and releases the lock.
    pub(crate) async fn go(self, bench: &BenchDatabase, sessions: i64) -> Result<Reading, Failure> {
        let sql = "select count(*)
            from pg_catalog.pg_stat_activity
            where datname = current_database()
                and backend_type = 'client backend'
                and wait_event_type = 'Lock'";
        let begun = Instant::now();
        loop {
            let waiting = bench.number(sql).await?;
            if waiting >= sessions {
                break;
            }
            if begun.elapsed() > DEADLINE {
                return Err(Failure::new(format!(
                    "{waiting} of {sessions} sessions reached the barrier"
                )));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let begun = bench.meter.begin().await?;
        self.connection.batch_execute("rollback").await?;
        Ok(begun)
    }
}
