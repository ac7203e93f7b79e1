//! Advances time in a test.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::Error;
use crate::client::Client;
use crate::clock::SLEPT;
use crate::sql::Interval;

/// The pause before another try to run a cycle.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest time to try it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Moves all times of jobs, attempts and tokens into the past. The server's clock is not touched.
const PASS: &str = "with waiting as (
        update trax.work_queue
        set run_at = run_at - $1, expires_at = expires_at - $1, wait_until = wait_until - $1
    ), suspended as (
        update trax.step
        set wait = wait || jsonb_build_object('until', (wait ->> 'until')::timestamptz - $1)
        where recorded_at is null and wait ->> 'until' is not null
    ), running as (
        update trax.lease
        set
            started_at = started_at - $1, run_at = run_at - $1, expires_at = expires_at - $1,
            lease_expires_at = lease_expires_at - $1, timeout_at = timeout_at - $1, reap_at = reap_at - $1
    )
    update trax.concurrency_token set acquired_at = acquired_at - $1, extended_at = extended_at - $1, expires_at = expires_at - $1";

/// Advances time by `time` for waiting and executing jobs, and then runs one cycle: delayed jobs
/// and retries become ready, leases expire, timeouts, sleeps and the time limits of waits end.
///
/// Schedules do not move. [`Client::preview_after`] returns the runs after any time, and
/// [`Client::trigger`] queues a run.
///
/// # Errors
/// If the role is not the owner of the tables. For test databases only.
pub async fn pass_time<C: GenericClient + Sync>(db: &C, time: Duration) -> Result<(), Error> {
    let arguments: [(&(dyn ToSql + Sync), Type); 1] = [(&Interval(time), Type::INTERVAL)];
    db.query_typed(PASS, &arguments).await?;
    cycle(db).await
}

/// Runs a cycle, after the one that a scheduler of the database may be running, which has not seen
/// the last changes.
pub(crate) async fn cycle<C: GenericClient + Sync>(db: &C) -> Result<(), Error> {
    let begun = Instant::now();
    while Client::new(db).tick().await?.is_empty() {
        if begun.elapsed() > PATIENCE {
            return Err(Error::new(
                "no cycle could run: another session keeps one open; end its transaction",
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Simulates for all workers and tokens of this process that the machine was suspended for
/// `length`: their timers stood still while leases and tokens advanced. The server does not notice.
pub fn machine_slept(length: Duration) {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    SLEPT.fetch_add(millis, Ordering::Relaxed);
}
