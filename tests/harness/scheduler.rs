//! Servers with schedulers, and the state of schedulers in `pg_stat_activity`.

use crate::database::Shared;
use crate::{PATIENCE, eventually, options};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::{Database, Options};

/// The settings of a server whose launcher starts a scheduler in every database with the extension;
/// tests that share such a server leave their databases there.
pub fn scheduling() -> Options {
    options().fast().setting("max_worker_processes", "500")
}

/// The shared server of the tests that need schedulers and do not change the server as a whole.
pub fn live_server() -> &'static Shared {
    static SERVER: OnceLock<Shared> = OnceLock::new();
    SERVER.get_or_init(|| Shared(scheduling().start().expect("a server starts")))
}

/// The shared server for tests of SQL jobs, since a launcher runs schedulers for at most 128
/// databases.
pub fn sql_server() -> &'static Shared {
    static SERVER: OnceLock<Shared> = OnceLock::new();
    SERVER.get_or_init(|| Shared(scheduling().start().expect("a server starts")))
}

/// Returns a database name that is not used yet.
pub fn new_name(kind: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{kind}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Creates a database with the extension on the live server; its scheduler runs.
pub async fn live_database() -> Database {
    scheduled_database(live_server()).await
}

/// As [`live_database`], on the server for SQL jobs.
pub async fn sql_database() -> Database {
    scheduled_database(sql_server()).await
}

async fn scheduled_database(server: &Shared) -> Database {
    let name = new_name("live");
    let database = server
        .database(&name)
        .await
        .expect("a database with the extension is made");
    let client = connect(&database).await;
    scheduler_of(&client, &name, PATIENCE).await;
    database
}

/// Connects as superuser.
pub async fn connect(database: &Database) -> Client {
    database
        .connect()
        .await
        .expect("the server takes a connection")
}

/// Returns the first column of a query's only row.
pub async fn value<T>(client: &Client, sql: &str) -> T
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    let row = client.query_one(sql, &[]).await;
    row.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
        .get(0)
}

/// Runs statements that must succeed.
pub async fn execute(client: &Client, sql: &str) {
    let done = client.batch_execute(sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// Returns the complaints of `trax.check()`; empty when healthy.
pub async fn violations(client: &Client) -> Vec<String> {
    let sql = "select rule || ': ' || coalesce(detail, '') from trax.check()";
    let rows = client.query(sql, &[]).await.expect("trax.check() answers");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Returns the processes of a database's schedulers.
pub async fn schedulers(client: &Client, database: &str) -> Result<Vec<i32>, String> {
    let sql =
        "select pid from pg_stat_activity where backend_type = 'trax scheduler' and datname = $1";
    let rows = client
        .query(sql, &[&database])
        .await
        .map_err(|error| format!("{error:?}"))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Waits for the only scheduler of a database.
pub async fn scheduler_of(client: &Client, database: &str, limit: Duration) -> i32 {
    another_scheduler_of(client, database, 0, limit).await
}

/// Waits for the only scheduler of a database, with another process id than `old`.
pub async fn another_scheduler_of(
    client: &Client,
    database: &str,
    old: i32,
    limit: Duration,
) -> i32 {
    let what = format!("a scheduler of {database} other than {old}");
    eventually(&what, limit, async || {
        match schedulers(client, database).await?.as_slice() {
            [pid] if *pid != old => Ok(*pid),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await
}

/// Waits until a database has no scheduler.
pub async fn no_scheduler_of(client: &Client, database: &str, limit: Duration) {
    let what = format!("the end of the scheduler of {database}");
    eventually(&what, limit, async || {
        match schedulers(client, database).await?.as_slice() {
            [] => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
}

/// Waits until the scheduler of a database has woken `times` times, which gives it the chance to
/// misbehave.
pub async fn scheduler_wakes(client: &Client, database: &str, times: usize) {
    let sql = "select query_start::text from pg_stat_activity
        where backend_type = 'trax scheduler' and datname = $1 and query_start is not null";
    let mut seen: Vec<String> = Vec::new();
    // A cycle that is already running does not count.
    while seen.len() <= times {
        let start = eventually("the scheduler wakes", PATIENCE, async || {
            let rows = client
                .query(sql, &[&database])
                .await
                .map_err(|error| format!("{error:?}"))?;
            let now: Option<String> = rows.first().map(|row| row.get(0));
            now.filter(|now| !seen.contains(now))
                .ok_or(format!("{seen:?}"))
        })
        .await;
        seen.push(start);
    }
}

/// Claims a job with a lease that ends at once, and waits until a cycle has taken it away.
pub async fn a_cycle_runs(client: &Client, limit: Duration) {
    let job: i64 = value(client, "select trax.enqueue('probe', max_retries => 0)").await;
    let claimed: i64 = value(
        client,
        "select job_id from trax.claim_next(tasks => '{probe}', lease => '1 ms')",
    )
    .await;
    assert_eq!(claimed, job);
    eventually("a cycle", limit, async || {
        let sql =
            "select count(*) from trax.run where failure_kind = 'lease_expired' and job_id = $1";
        let row = client
            .query_one(sql, &[&job])
            .await
            .map_err(|error| format!("{error:?}"))?;
        if row.get::<_, i64>(0) == 1 {
            Ok(())
        } else {
            Err("the lease is still there".to_owned())
        }
    })
    .await;
}

/// Returns the value, health and hint of one item of `trax.status()`.
pub async fn status(client: &Client, item: &str) -> (String, bool, Option<String>) {
    let sql = "select value, healthy, hint from trax.status() where item = $1";
    let row = client
        .query_one(sql, &[&item])
        .await
        .expect("trax.status() has the item once");
    (row.get(0), row.get(1), row.get(2))
}

/// Waits until an item of `trax.status()` has this value.
pub async fn status_becomes(client: &Client, item: &str, wanted: &str, limit: Duration) {
    eventually(&format!("status {item:?} {wanted:?}"), limit, async || {
        let (value, ..) = status(client, item).await;
        if value == wanted { Ok(()) } else { Err(value) }
    })
    .await;
}
