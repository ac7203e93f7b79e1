//! The state and the results of jobs.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::GenericClient;

use super::Client;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job_result::{Job, JobResult};
use crate::sql::{Call, Interval};

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Returns a job in any state. `None` if the job does not exist, or ended longer ago than
    /// `trax.run_retention`.
    pub async fn job(&self, job_id: JobId) -> Result<Option<Job>> {
        Ok(self.jobs(&[job_id]).await?.pop())
    }

    /// Returns the jobs that exist among these, in no particular order.
    pub async fn jobs(&self, job_ids: &[JobId]) -> Result<Vec<Job>> {
        let ids: Vec<i64> = job_ids.iter().map(|job_id| job_id.0).collect();
        let rows = Call::new("get_jobs")
            .arg("job_ids", &ids)
            .rows(self.db(), Job::COLUMNS)
            .await?;
        rows.iter().map(Job::from_row).collect()
    }

    /// Waits until a job has ended, at most for `timeout`, and returns its result. The output is
    /// parsed as `T`, the type that its handler returns.
    ///
    /// Other calls on the connection wait until this one returns. To wait for many jobs use
    /// [`JobWaiter`](crate::JobWaiter).
    ///
    /// # Errors
    /// [`Error::UnknownName`] (42704) if the job does not exist, [`Error::WrongState`] inside a
    /// transaction.
    pub async fn await_job<T: DeserializeOwned>(
        &self,
        job_id: JobId,
        timeout: Duration,
    ) -> Result<JobResult<T>> {
        let timeout = Interval(timeout);
        let rows = Call::new("await_job")
            .arg("job_id", &job_id.0)
            .arg("timeout", &timeout)
            .procedure_with_results(self.db(), JobResult::<T>::COLUMNS)
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::Conversion("no row".into()))?;
        JobResult::from_row(row)
    }
}
