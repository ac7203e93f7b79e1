//! Runs the statements of one job in an executor: as the role of its session, if possible in one
//! transaction with the record of their completion.
//!
//! A single statement runs outside a transaction block, where it may commit: its completion is
//! recorded in the last of its transactions, and nothing of it runs twice. Several statements form
//! a block. After an error that another transaction caused, all of them run again, a few times, if
//! no part of them was committed.

use super::record::{Record, took_effect_late};
use crate::claim::SqlJob;
use crate::error::Error;
use crate::server::sql_log;
use crate::server::sql_report;
use crate::server::sql_report::{ServerError, guarded};
use crate::server::sql_result::{Collector, quote};
use crate::server::sql_session;
use crate::server::sql_session::Alone;
use crate::server::sql_text::{Done, Parsed};
use pgrx::pg_sys;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// How often a transaction that failed because of another one runs again at once.
const CONFLICTS: usize = 3;

/// The end of a job's statement.
pub(super) enum Ended {
    /// The end is recorded, or the lease was lost and everything is rolled back.
    Recorded,
    /// The statement ran outside a transaction: its completion is yet to be recorded.
    Outside(Vec<u8>),
    Failed {
        error: Box<ServerError>,
        permanent: bool,
    },
}

/// Runs the statements of a job as the role of the session; an error leaves nothing open.
pub(super) fn run(record: &Record, role: pg_sys::Oid, role_name: &str, job: &SqlJob) -> Ended {
    let Some(text) = job
        .command
        .as_deref()
        .and_then(|text| CString::new(text).ok())
    else {
        return permanently(Error::invalid("the job has no command"));
    };
    if !job.is_for(role) {
        return permanently(another_role(role_name));
    }
    sql_session::show(&text);
    let ended = run_text(record, job, &text);
    sql_session::hide();
    ended
}

fn run_text(record: &Record, job: &SqlJob, text: &CStr) -> Ended {
    let mut conflicts = 0;
    let mut is_logged = None;
    loop {
        let parsed = match guarded(|| Parsed::new(text)) {
            Ok(parsed) => parsed,
            Err(error) => {
                sql_session::abort();
                return failed(error);
            }
        };
        if let Err(error) = parsed.refuse() {
            return permanently(error);
        }
        let is_logged = *is_logged.get_or_insert_with(|| parsed.log_statement());
        let needs_block = parsed.needs_block();
        let ran = guarded(|| {
            sql_session::begin_run();
            match needs_block {
                true => run_block(record, job, &parsed),
                false => run_alone(record, job, &parsed),
            }
        });
        // Checked before its current transaction ends.
        let is_kept = !needs_block && sql_session::has_committed();
        let mut error = match ran {
            Ok(ended) => {
                sql_log::duration(text, is_logged);
                return ended;
            }
            Err(error) => error,
        };
        sql_session::abort();
        error.in_transaction = !is_kept;
        let is_conflict = ["40001", "40P01"].contains(&error.sqlstate.as_str());
        if is_kept || !is_conflict || conflicts == CONFLICTS {
            return failed(error);
        }
        conflicts += 1;
    }
}

/// Runs the statements and records the completion in one transaction; rolls everything back
/// when another worker has the lease by now.
fn run_block(record: &Record, job: &SqlJob, parsed: &Parsed) -> Ended {
    sql_session::begin_block();
    let mut collector = Collector::new();
    let mut last = None;
    for index in 0..parsed.count() {
        last = Some(sql_session::one_statement(|| {
            parsed.run(index, &mut collector)
        }));
    }
    let done = last.expect("a text without a statement is refused");
    if !sql_session::end_block(|| record.complete(job, output(&done, &collector, true))) {
        sql_session::abort();
    }
    Ended::Recorded
}

/// Runs a statement that may commit by itself, and records the completion in the last of its
/// transactions, usually the only one.
fn run_alone(record: &Record, job: &SqlJob, parsed: &Parsed) -> Ended {
    let ran = sql_session::alone(
        || {
            let mut collector = Collector::new();
            (parsed.run(0, &mut collector), collector)
        },
        |(done, collector)| {
            let is_whole = !sql_session::has_committed();
            record.complete(job, output(done, collector, is_whole))
        },
    );
    match ran {
        Alone::Committed => {}
        Alone::WithoutOurs((done, collector)) => {
            return Ended::Outside(output(&done, &collector, false));
        }
        Alone::Refused => {
            let is_kept = sql_session::has_committed();
            sql_session::abort();
            if is_kept {
                took_effect_late(job);
            }
        }
    }
    Ended::Recorded
}
fn failed(error: Box<ServerError>) -> Ended {
    Ended::Failed {
        error,
        permanent: false,
    }
}

fn another_role(name: &str) -> Error {
    Error::wrong_state(format!(
        "role \"{name}\" is not the role for which this statement was queued"
    ))
    .detail("The original role was dropped or renamed, and another role now has its name.")
    .hint("Queue the statement again: select trax.enqueue_sql('...'), or trax.schedule('name', sql => '...').")
}

/// Returns a failure that another attempt would only repeat.
fn permanently(error: Error) -> Ended {
    let error = ServerError::of(error);
    sql_session::abort();
    Ended::Failed {
        error,
        permanent: true,
    }
}

/// Returns the value of `trax.run.output` for a text, as JSON.
fn output(done: &Done, collector: &Collector, in_transaction: bool) -> Vec<u8> {
    let mut json = b"{\"command\":".to_vec();
    quote(&mut json, done.tag.as_bytes());
    json.extend_from_slice(format!(",\"rows\":{}", done.rows).as_bytes());
    collector.write(&mut json);
    json.extend_from_slice(b",\"notices\":[");
    json.extend_from_slice(&sql_report::notices());
    let millis = |duration: Duration| duration.as_micros() as f64 / 1000.0;
    let rest = format!(
        "],\"plan_ms\":{},\"run_ms\":{},\"transaction\":{in_transaction}}}",
        millis(done.planned_in),
        millis(done.ran_in)
    );
    json.extend_from_slice(rest.as_bytes());
    json
}
