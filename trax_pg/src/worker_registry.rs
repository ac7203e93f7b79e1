//! The registry of workers: their names, and since when they claim.
//!
//! Enters: a worker's report about itself, or the name in a claim. Leaves: a row of `trax.worker`,
//! refreshed by each report, and by claims at most twice a minute per session. Holds: registering
//! never waits nor makes a claim wait, and a claim that takes nothing registers nothing; the result
//! says whether a report was stored, and a stored report may be lost in a crash, as a heartbeat
//! may.

use crate::error::Error;
use crate::server::backend;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::durability;
use crate::server::hash::name_hash_64;
use crate::server::lock::{Lock, Mode};
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::server::transaction;
use pgrx::JsonB;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How often a session refreshes the row of its worker, in microseconds.
const INTERVAL_MICROS: i64 = 30 * 1_000_000;
/// How long after it was last seen a worker that executes nothing is deleted, in microseconds.
const FORGET_MICROS: i64 = 10 * 60 * 1_000_000;

statement!(
    WorkerSeen, "worker_registry/seen.sql",
    { name: TEXTOID, now: TIMESTAMPTZOID, info: JSONBOID }
);
statement!(
    WorkerReport, "worker_registry/report.sql",
    {
        name: TEXTOID,
        now: TIMESTAMPTZOID,
        period: INTERVALOID,
        stopping: BOOLOID,
        info: JSONBOID,
    }
);
statement!(WorkerLeave, "worker_registry/leave.sql", { name: TEXTOID });
statement!(WorkerForget, "worker_registry/forget.sql", { before: TIMESTAMPTZOID });

/// The largest report, in bytes: it is written often and read by people.
const INFO_BYTES: usize = 8 * 1024;

sql_function!(trax_report_worker, pg_finfo_trax_report_worker, |call| {
    let name = call.name(0, "name")?;
    call.positive(1, "period")?;
    let state = call.optional_name(2, "state")?;
    let state = state.unwrap_or_else(|| "running".to_owned());
    if !matches!(state.as_str(), "running" | "stopping" | "stopped") {
        return Err(
            Error::invalid(format!("\"{state}\" is not a state of a worker"))
                .detail("A worker is running, stopping or stopped.")
                .hint("Specify one of these: state => 'stopping'"),
        );
    }
    let info = call.datum(3);
    let bytes = info.map_or(0, spi::value_bytes);
    if bytes > INFO_BYTES {
        return Err(Error::too_large("argument \"info\" is too large")
            .detail(format!(
                "info has {bytes} bytes; the limit is {INFO_BYTES}."
            ))
            .hint("Report host, version and the first of many tasks."));
    }
    spi::require_primary()?;
    let untouched = durability::is_untouched();
    let taken = spi::connected(|spi| {
        // A claim of this worker may keep its transaction open; the next report contains the same.
        if !Lock::Worker(&name).take_if_free(Mode::Alone) {
            return Ok(false);
        }
        if state == "stopped" {
            spi.execute(WorkerLeave {
                name: arg(name.as_str()),
            });
            return Ok(true);
        }
        spi.execute(WorkerReport {
            name: arg(name.as_str()),
            now: arg(Timestamp::now()),
            period: call.datum(1),
            stopping: arg(state == "stopping"),
            info,
        });
        Ok(true)
    })?;
    if untouched {
        durability::may_be_lost();
    }
    Ok(call.value(taken))
});

/// The worker that this session last recorded, as a hash, and when.
static NOTED: AtomicU64 = AtomicU64::new(0);
static NOTED_AT: AtomicI64 = AtomicI64::new(i64::MIN);

/// Records a worker that has claimed something.
pub(crate) fn seen(spi: &Spi, worker: &str, now: Timestamp) {
    let hash = name_hash_64(&[worker]);
    let noted_at = Timestamp(NOTED_AT.load(Ordering::Relaxed));
    let fresh = noted_at.is_finite() && noted_at <= now && now < noted_at.plus(INTERVAL_MICROS);
    if fresh && NOTED.load(Ordering::Relaxed) == hash {
        return;
    }
    // Another session of this worker may keep the transaction of its claim open.
    if !Lock::Worker(worker).take_if_free(Mode::Alone) {
        return;
    }
    NOTED.store(hash, Ordering::Relaxed);
    NOTED_AT.store(now.0, Ordering::Relaxed);
    transaction::unless_committed(forget_noted);
    spi.execute(WorkerSeen {
        name: arg(worker),
        now: arg(now),
        info: arg(about()),
    });
}

/// Deletes a worker that reports its end. A row that another session has locked is left.
pub(crate) fn left(spi: &Spi, worker: &str) {
    if Lock::Worker(worker).take_if_free(Mode::Alone) {
        spi.execute(WorkerLeave { name: arg(worker) });
    }
}

/// Clears the record, because the row may be rolled back.
fn forget_noted() {
    NOTED_AT.store(i64::MIN, Ordering::Relaxed);
}

/// Deletes workers that are gone; returns how many.
pub(crate) fn forget_gone(spi: &Spi, now: Timestamp) -> usize {
    spi.execute(WorkerForget {
        before: arg(now.plus(-FORGET_MICROS)),
    })
}

/// Returns the server's data on this session.
fn about() -> JsonB {
    JsonB(serde_json::json!({
        "application_name": backend::application_name(),
        "backend_pid": backend::my_pid(),
    }))
}
