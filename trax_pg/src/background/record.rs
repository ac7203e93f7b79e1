//! Records the outcome of a SQL job, in the current transaction of its executor.

use crate::claim::SqlJob;
use crate::error::Error;
use crate::lease::Held;
use crate::outcome;
use crate::outcome::Failure;
use crate::server::clock::Timestamp;
use crate::server::rights::with_rights_of;
use crate::server::spi;
use crate::server::sql_report::{QUERY_CANCELED, ServerError};
use crate::server::sql_result::jsonb;
use crate::server::version;
use pgrx::pg_sys;

/// Records outcomes with the rights of the extension's owner.
pub(super) struct Record {
    owner: pg_sys::Oid,
}

impl Record {
    pub(super) fn of(owner: pg_sys::Oid) -> Self {
        Self { owner }
    }

    /// Records the completion in the current transaction; returns whether the lease is still held.
    pub(super) fn complete(&self, job: &SqlJob, output: Vec<u8>) -> bool {
        version::require();
        let held = Held {
            job_ids: vec![job.job_id],
            tokens: vec![job.token],
        };
        let recorded = with_rights_of(self.owner, || {
            spi::connected(|spi| {
                outcome::complete(spi, &held, &[Some(jsonb(output)).into()], Timestamp::now())
            })
        });
        !recorded.unwrap_or_else(|error| error.raise()).is_empty()
    }

    /// Lets the job wait for `delay` microseconds, and until its group is enabled again.
    pub(super) fn release(&self, job: &SqlJob, delay: i64) {
        version::require();
        let released = with_rights_of(self.owner, || {
            spi::connected(|spi| {
                outcome::release(spi, job.job_id, job.token, delay, Timestamp::now())
            })
        });
        released.unwrap_or_else(|error| error.raise());
    }

    pub(super) fn fail(&self, job: &SqlJob, error: &ServerError, notices: &[u8], permanent: bool) {
        version::require();
        let recorded = with_rights_of(self.owner, || {
            spi::connected(|spi| {
                let failure = Failure {
                    error: error.message.clone(),
                    detail: Some(jsonb(error.json(notices))),
                    retry_in: None,
                    permanent,
                    was_told_to_stop: error.sqlstate == QUERY_CANCELED,
                };
                outcome::fail(spi, job.job_id, job.token, failure, Timestamp::now());
                Ok(())
            })
        });
        recorded.unwrap_or_else(|error| error.raise());
    }
}

/// Reports that a statement took effect although its job is recorded otherwise, or will run again.
pub(super) fn took_effect_late(job: &SqlJob) {
    let error = Error::wrong_state(format!(
        "the statement of SQL job {} took effect after its lease was lost",
        job.job_id
    ));
    let detail = "It ran outside of a transaction. Its job has ended otherwise, or runs again.";
    error.detail(detail).warn();
}
