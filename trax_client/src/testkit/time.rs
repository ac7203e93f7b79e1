//! Time that passes when a test advances it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::Error;
use crate::client::Client;
use crate::clock::SLEPT;
use crate::sql::Interval;

/// Every deadline of jobs, attempts and tokens comes nearer: the server's clock is not touched.
const PASS: &str = "with waiting as (
        update trax.work_queue set run_at = run_at - $1, expires_at = expires_at - $1
    ), running as (
        update trax.lease
        set
            started_at = started_at - $1, run_at = run_at - $1, expires_at = expires_at - $1,
            lease_expires_at = lease_expires_at - $1, timeout_at = timeout_at - $1, reap_at = reap_at - $1
    )
    update trax.concurrency_token set acquired_at = acquired_at - $1, extended_at = extended_at - $1, expires_at = expires_at - $1";

/// Lets so much time pass for what waits and what runs, and then runs one cycle: jobs that were due
/// later are ready, as are retries, leases have expired, timeouts have come.
///
/// Schedules do not move. [`Client::preview_after`] returns when they run, for any time, and
/// [`Client::trigger`] runs one.
///
/// # Errors
/// When the role is not the owner of the tables: this is for databases of tests.
pub async fn pass_time<C: GenericClient + Sync>(db: &C, time: Duration) -> Result<(), Error> {
    let arguments: [(&(dyn ToSql + Sync), Type); 1] = [(&Interval(time), Type::INTERVAL)];
    db.query_typed(PASS, &arguments).await?;
    Client::new(db).tick().await?;
    Ok(())
}

/// Makes every worker and token of this process believe that the machine has slept so long: their
/// timers have stood still, and leases and tokens have gone on. The server has not noticed
/// anything.
pub fn machine_slept(length: Duration) {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    SLEPT.fetch_add(millis, Ordering::Relaxed);
}
