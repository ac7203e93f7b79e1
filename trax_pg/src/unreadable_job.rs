//! Unreadable jobs: those whose input or trace is damaged in its TOAST table.
//!
//! Enters: jobs that a claim, an outcome or the cycle could not read (XX001, XX002). Leaves: a row
//! of `trax.unreadable_job` with the server's error, for `trax.status()`, and the waiting job put
//! off by [`PUT_OFF_MICROS`]; the reaper puts leases off itself. Holds: a job that may be repaired
//! loses nothing: it is neither queued again nor made a dead letter without its input. Only a
//! completion and a cancel end it, with the error in place of the input. A job that can be read
//! again continues by itself, and the sweep removes its row.

use crate::changes;
use crate::error::Error;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::wake;
use pgrx::datum::IntoDatum;
use pgrx::pg_sys;
use std::collections::HashSet;

/// How long a waiting job is put off before it is tried again.
const PUT_OFF_MICROS: i64 = 10 * 60 * 1_000_000;
/// The most jobs that one sweep checks.
const SWEEP_AT_MOST: i64 = 1000;

statement!(
    UnreadableNote, "unreadable_job/note.sql",
    { job_ids: INT8ARRAYOID, errors: TEXTARRAYOID, now: TIMESTAMPTZOID }
);
statement!(
    UnreadablePutOff, "unreadable_job/put_off.sql",
    { job_ids: INT8ARRAYOID, run_at: TIMESTAMPTZOID } -> i64
);
statement!(UnreadableRead, "unreadable_job/read.sql", { job_ids: INT8ARRAYOID } -> i64);
statement!(UnreadableList, "unreadable_job/list.sql", { at_most: INT8OID } -> i64);
statement!(UnreadableForget, "unreadable_job/forget.sql", { job_ids: INT8ARRAYOID });

/// A job that could not be read, and the error.
pub(crate) type Unreadable = (i64, Error);

/// Records jobs that could not be read. Waits for sessions that record the same, unless the caller
/// has locked the jobs.
pub(crate) fn note(spi: &Spi, found: &[Unreadable], now: Timestamp) {
    let (job_ids, errors): (Vec<i64>, Vec<String>) = found
        .iter()
        .map(|(job_id, error)| (*job_id, error.message().to_owned()))
        .unzip();
    for (job_id, error) in found {
        let error = error.message();
        pgrx::warning!("trax: job {job_id} cannot be read and is skipped: {error}");
    }
    spi.execute(UnreadableNote {
        job_ids: arg(job_ids),
        errors: arg(errors),
        now: arg(now),
    });
}

/// Records waiting jobs that could not be read and that no other transaction has locked, and puts
/// them off.
pub(crate) fn put_off(spi: &Spi, mut found: Vec<Unreadable>, now: Timestamp) {
    if found.is_empty() {
        return;
    }
    changes::taken();
    wake::mark(wake::DUE);
    let job_ids: Vec<i64> = found.iter().map(|(job_id, _)| *job_id).collect();
    let put_off = spi.query(UnreadablePutOff {
        job_ids: arg(job_ids),
        run_at: arg(now.plus(PUT_OFF_MICROS)),
    });
    let put_off: HashSet<i64> = put_off.iter().collect();
    found.retain(|(job_id, _)| put_off.contains(job_id));
    note(spi, &found, now);
}

/// Returns the jobs that cannot be read.
pub(crate) fn find(spi: &Spi, job_ids: &[i64]) -> Vec<Unreadable> {
    let read = spi::isolated(|| {
        Ok(spi
            .query(UnreadableRead {
                job_ids: arg(job_ids.to_vec()),
            })
            .one())
    });
    match read {
        Ok(_) => Vec::new(),
        Err(error) if !error.is_unreadable() => error.raise(),
        Err(error) if job_ids.len() == 1 => vec![(job_ids[0], error)],
        Err(_) => {
            let (first, second) = job_ids.split_at(job_ids.len() / 2);
            let mut found = find(spi, first);
            found.extend(find(spi, second));
            found
        }
    }
}

/// Deletes the records of jobs that can be read again, or are gone.
pub(crate) fn sweep(spi: &Spi) {
    let listed = spi.query(UnreadableList {
        at_most: arg(SWEEP_AT_MOST),
    });
    let listed: Vec<i64> = listed.iter().collect();
    if listed.is_empty() {
        return;
    }
    let still: Vec<i64> = find(spi, &listed)
        .into_iter()
        .map(|(job_id, _)| job_id)
        .collect();
    let readable: Vec<i64> = listed
        .into_iter()
        .filter(|job_id| !still.contains(job_id))
        .collect();
    spi.execute(UnreadableForget {
        job_ids: arg(readable),
    });
}

/// Returns the value that replaces an unreadable input in history.
pub(crate) fn placeholder(error: &Error) -> Option<pg_sys::Datum> {
    pgrx::JsonB(serde_json::json!({ "unreadable": error.message() })).into_datum()
}
