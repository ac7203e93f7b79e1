//! Progress: an attempt's report of how far it is, visible while it runs.
//!
//! Enters: a lease and a small document. Leaves: one row of `trax.progress` per reporting job,
//! which `trax.job` shows while that lease is held. Holds: a job that reports nothing costs
//! nothing; a report waits for no heartbeat and no outcome, and none waits for it. A row whose
//! lease has ended is ignored, and deleted within a minute or two.

use crate::error::Error;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::unseen;
use pgrx::Uuid;

/// The largest report, in bytes: it is written often and read by people.
const REPORT_BYTES: usize = 8 * 1024;
/// The age at which a report without a lease is deleted, in microseconds.
const FORGET_MICROS: i64 = 60 * 1_000_000;

statement!(
    ProgressReport, "progress/report.sql",
    { job_id: INT8OID, token: UUIDOID, progress: JSONBOID, now: TIMESTAMPTZOID }
);
statement!(ProgressForget, "progress/forget.sql", { before: TIMESTAMPTZOID });

sql_function!(
    trax_report_progress,
    pg_finfo_trax_report_progress,
    |call| {
        let job_id = call.required::<i64>(0, "job_id")?;
        let token = call.required::<Uuid>(1, "token")?;
        let progress = call
            .datum(2)
            .ok_or_else(|| Error::null_argument("progress"))?;
        let bytes = spi::value_bytes(progress);
        if bytes > REPORT_BYTES {
            return Err(Error::too_large("argument \"progress\" is too large")
                .detail(format!(
                    "progress has {bytes} bytes; the limit is {REPORT_BYTES}."
                ))
                .hint(
                    "Report a number, a text or a small document; results belong in the output.",
                ));
        }
        let reported = spi::connected(|spi| {
            let report = ProgressReport {
                job_id: arg(job_id),
                token: arg(token),
                progress: Some(progress),
                now: arg(Timestamp::now()),
            };
            let reported = spi.execute(report) > 0;
            if !reported {
                unseen::refuse_lease(spi, vec![job_id], vec![token]);
            }
            Ok(reported)
        })?;
        Ok(call.value(reported))
    }
);

/// Deletes the reports of attempts that have ended.
pub(crate) fn sweep(spi: &Spi, now: Timestamp) {
    spi.execute(ProgressForget {
        before: arg(now.plus(-FORGET_MICROS)),
    });
}
