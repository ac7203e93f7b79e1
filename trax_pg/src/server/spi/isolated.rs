//! Work whose failure rolls back only its own changes.

use crate::error::{Error, Result};
use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel};
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};
use std::panic::AssertUnwindSafe;

/// How work ends without success.
enum Ended {
    Failed(Error),
    /// A cancel or a shutdown.
    Interrupted(Box<CaughtError>),
}

/// Runs `work` so that its failure rolls back only its own changes, and returns that failure. A
/// cancel or a shutdown is raised again outside the subtransaction, in which the session would
/// otherwise remain.
pub(crate) fn isolated<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: memory context and resource owner are restored after the subtransaction has ended, as
    // the server's own languages do.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = context;
        let outcome = PgTryBuilder::new(AssertUnwindSafe(|| work().map_err(Ended::Failed)))
            .catch_others(|caught| {
                Err(if is_interrupt(&caught) {
                    Ended::Interrupted(Box::new(caught))
                } else {
                    Ended::Failed(caught_error(caught))
                })
            })
            .execute();
        if outcome.is_ok() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::CurrentMemoryContext = context;
        pg_sys::CurrentResourceOwner = owner;
        match outcome {
            Ok(done) => Ok(done),
            Err(Ended::Failed(error)) => Err(error),
            Err(Ended::Interrupted(caught)) => caught.rethrow(),
        }
    }
}

fn report(caught: &CaughtError) -> &ErrorReportWithLevel {
    match caught {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report,
        CaughtError::RustPanic { ereport, .. } => ereport,
    }
}

fn is_interrupt(caught: &CaughtError) -> bool {
    matches!(
        report(caught).sql_error_code(),
        PgSqlErrorCode::ERRCODE_QUERY_CANCELED | PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN
    )
}

pub(super) fn caught_error(caught: CaughtError) -> Error {
    if is_interrupt(&caught) {
        caught.rethrow()
    }
    let report = report(&caught);
    let mut error = Error::new(report.sql_error_code(), report.message());
    if let Some(detail) = report.detail() {
        error = error.detail(detail);
    }
    if let Some(hint) = report.hint() {
        error = error.hint(hint);
    }
    error
}
