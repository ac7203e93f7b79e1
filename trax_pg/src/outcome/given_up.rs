//! Jobs that ended while they waited: cancelled, or expired.

use super::{Ended, finish_jobs};
use crate::columns::Outcome;
use crate::limit::Shared;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, row};
use crate::{changes, job_needs, limit, metrics};

row! {
    /// A job that ended while it waited.
    pub(super) struct GivenUp {
        job_id: i64,
        manifest_id: Option<i64>,
        unique_key: Option<String>,
        concurrency_key: Option<String>,
        task: String,
        parent_job_id: Option<i64>,
        acknowledged: bool,
        /// Its lane, if a rate is that of the lane.
        rate_lane: Option<i64>,
    }
}

/// Applies the consequences for jobs that ended while they waited, and for the jobs behind their
/// keys and manifests; returns how many ended.
pub(super) fn given_up(spi: &Spi, jobs: Vec<GivenUp>, outcome: Outcome, now: Timestamp) -> usize {
    metrics::ended_waiting(&jobs, |job| &job.task, outcome);
    let count = jobs.len();
    changes::lanes_left(jobs.iter().filter_map(|job| job.rate_lane));
    job_needs::forget(spi, &jobs.iter().map(|job| job.job_id).collect::<Vec<_>>());
    let (ended, freed): (Vec<Ended>, Vec<_>) = jobs
        .into_iter()
        .map(|job| {
            let freed = Shared::of(job.concurrency_key, job.manifest_id);
            let ended = Ended {
                job_id: job.job_id,
                manifest_id: job.manifest_id,
                unique_key: job.unique_key,
                parent_job_id: job.parent_job_id,
                succeeded: false,
                done: outcome == Outcome::Cancelled || job.acknowledged,
            };
            (ended, freed)
        })
        .unzip();
    finish_jobs(spi, ended, now);
    limit::let_next_in(spi, freed.into_iter().flatten());
    count
}
