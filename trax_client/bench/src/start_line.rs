//! A start that all see at once: a lock on the queue that everybody waits for.
//!
//! So the clock begins when the connections stand and the first claims are sent, and nothing of the load
//! or of connecting is measured.

use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;

use super::ground::Ground;
use super::meter::Begun;
use trax_terminal::Failure;

const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct StartLine {
    connection: Connection,
}

impl StartLine {
    /// From now on nobody changes the table.
    pub(crate) async fn draw(ground: &Ground, table: &str) -> Result<Self, Failure> {
        let connection = ground.connect().await?;
        let sql = format!("begin; lock table {table} in share row exclusive mode");
        connection.batch_execute(&sql).await?;
        Ok(StartLine { connection })
    }

    /// Waits until so many sessions stand there, starts the clock, and lets them go.
    pub(crate) async fn go(self, ground: &Ground, sessions: i64) -> Result<Begun, Failure> {
        let sql = "select count(*)
            from pg_catalog.pg_stat_activity
            where datname = current_database()
                and backend_type = 'client backend'
                and wait_event_type = 'Lock'";
        let begun = Instant::now();
        loop {
            let waiting = ground.number(sql).await?;
            if waiting >= sessions {
                break;
            }
            if begun.elapsed() > DEADLINE {
                return Err(Failure::new(format!(
                    "{waiting} of {sessions} sessions came to the start"
                )));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let begun = ground.meter.begin().await?;
        self.connection.batch_execute("rollback").await?;
        Ok(begun)
    }
}
