//! Releases: an attempt that ends without being spent.

use super::cancel::acknowledge_cancel;
use crate::limit;
use crate::limit::Shared;
use crate::metrics::Stale;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{arg, statement};
use crate::{changes, wake};
use pgrx::Uuid;

statement!(
    LEASE_RELEASE,
    "outcome/lease_release.sql",
    INT8OID,
    UUIDOID,
    TIMESTAMPTZOID,
    TIMESTAMPTZOID
);

sql_function!(trax_release, pg_finfo_trax_release, |call| {
    let job_id = call.required::<i64>(0, "job_id")?;
    let token = call.required::<Uuid>(1, "token")?;
    let delay = call.optional_not_negative(2, "delay")?.unwrap_or(0);
    let now = Timestamp::now();
    // Also when it is delayed: its place is free.
    wake::mark(wake::WORK | wake::DUE | wake::ENDED);
    let released = spi::connected(|spi| {
        let arguments = [arg(job_id), arg(token), arg(now), arg(now.plus(delay))];
        let rows = spi.query(&LEASE_RELEASE, &arguments);
        let Some(row) = rows.first() else {
            // A job that was asked to stop is not queued again: giving it back acknowledges that.
            return Ok(acknowledge_cancel(spi, job_id, token, now, Stale::Release));
        };
        if row.must(6) {
            changes::claimable(row.must(1), row.must(2), row.must(3));
        }
        changes::lease_ended(job_id);
        // Whether it has a limit: the gate is opened at most once too often.
        changes::group_changed(&row.must::<String>(5));
        limit::free(spi, Shared::of(row.get(4), row.get(7)), true);
        Ok(true)
    })?;
    Ok(call.value(released))
});
