//! A report of the session whose lock a command waits for.

use std::time::Duration;

use tokio_postgres::types::Type;
use trax_client::Address;

use trax_terminal::{address, print};

/// How long a command waits before it looks for the holder of a lock, and between looks.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOKS: u32 = 20;

/// The first session that this one waits for.
const BLOCKER: &str = "select b.pid, b.application_name, coalesce(b.state, b.backend_type), b.query
    from pg_catalog.unnest(pg_catalog.pg_blocking_pids($1)) p (pid)
    join pg_catalog.pg_stat_activity b on b.pid operator(pg_catalog.=) p.pid
    limit 1";

/// Reports on standard error if the server's process `pid`, which serves the command, waits for a
/// lock. The command goes on waiting.
pub(crate) fn report(address: &Address, pid: i32) {
    let address = address.clone();
    tokio::spawn(async move {
        tokio::time::sleep(PATIENCE).await;
        let Ok(connection) = address::connect(&address).await else {
            return;
        };
        for _ in 0..LOOKS {
            match connection.query_typed(BLOCKER, &[(&pid, Type::INT4)]).await {
                Ok(rows) if rows.is_empty() => tokio::time::sleep(PATIENCE).await,
                Ok(rows) => {
                    if let Ok(text) = describe(&rows[0]) {
                        print::log("trax", &text);
                    }
                    return;
                }
                Err(_) => return,
            }
        }
    });
}

fn describe(row: &tokio_postgres::Row) -> Result<String, tokio_postgres::Error> {
    let pid: i32 = row.try_get(0)?;
    let (application, state): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
    let query: Option<String> = row.try_get(3)?;
    Ok(format!(
        "waiting for a lock of process {pid} ({}, {}: {}); to end its session: select pg_terminate_backend({pid})",
        application
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "no application_name".to_owned()),
        state.unwrap_or_default(),
        query.unwrap_or_default()
    ))
}
