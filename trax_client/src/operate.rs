//! Calls about many jobs, and about future runs.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio_postgres::{GenericClient, Row};

use crate::client::Client;
use crate::error::Result;
use crate::id::JobId;
use crate::json::Json;
use crate::manifest::{self, Manifest};
use crate::sql::{Call, Interval, Time};

/// A future run of a manifest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Upcoming {
    /// When the run is due, by the server's clock.
    pub run_at: SystemTime,
    /// The same time in the manifest's zone, with its offset.
    pub local_time: Option<String>,
    /// The reason for a moved run: an exclusion, or a clock change.
    pub note: Option<String>,
}

/// A reason why a job waits, or why a manifest does or does not run now.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Explanation {
    /// The reason, as one word.
    pub reason: String,
    /// The reason, as a sentence.
    pub detail: Option<String>,
    /// The action to take, if any.
    pub action: Option<String>,
}

/// A change that `apply` made, or would make, to an object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct AppliedChange {
    /// The action: `created`, `changed`, `unchanged` or `removed`.
    pub action: String,
    /// `group`, `manifest`, `rate` or `task`.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// The difference.
    pub detail: Option<String>,
}

impl AppliedChange {
    const COLUMNS: &'static str = "action, kind, name, detail";

    fn from_row(row: &Row) -> Result<Self> {
        Ok(AppliedChange {
            action: row.try_get("action")?,
            kind: row.try_get("kind")?,
            name: row.try_get("name")?,
            detail: row.try_get("detail")?,
        })
    }
}

/// A selection of dead letters to queue again. Filters that are not set exclude none.
#[derive(Clone, Debug, Default)]
pub struct DeadLetters {
    task: Option<String>,
    manifest: Option<String>,
    group_name: Option<String>,
    since: Option<Time>,
    max_count: Option<i32>,
}

impl DeadLetters {
    /// Selects all dead letters that await intervention.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the selection to this task.
    pub fn task(mut self, name: impl Into<String>) -> Self {
        self.task = Some(name.into());
        self
    }

    /// Limits the selection to this manifest.
    pub fn manifest(mut self, name: impl Into<String>) -> Self {
        self.manifest = Some(name.into());
        self
    }

    /// Limits the selection to this group.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group_name = Some(name.into());
        self
    }

    /// Limits the selection to jobs that died at this time or later.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(Time(time));
        self
    }

    /// Limits the selection to this many, oldest first.
    pub fn max_count(mut self, count: i32) -> Self {
        self.max_count = Some(count);
        self
    }
}

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Queues a job of a manifest that becomes claimable after this delay.
    pub async fn trigger_in(
        &self,
        name: &str,
        input: Option<Json>,
        delay: Duration,
    ) -> Result<JobId> {
        let call = Call::new("trigger")
            .arg("name", &name)
            .option("input", &input);
        let delay = Interval(delay);
        Ok(JobId(call.arg("delay", &delay).value(self.db()).await?))
    }

    /// Queues a job of every enabled manifest of a group, except dormant ones, and returns their
    /// number.
    pub async fn trigger_group(&self, group: &str) -> Result<i64> {
        self.count("trigger_group", "group_name", group).await
    }

    /// Queues a job of a dormant manifest and returns its id. Possible only while a job of one of
    /// its parents is executing.
    pub async fn activate(&self, name: &str, input: Option<Json>) -> Result<JobId> {
        let call = Call::new("activate")
            .arg("name", &name)
            .option("input", &input);
        Ok(JobId(call.value(self.db()).await?))
    }

    /// Cancels the waiting jobs of a manifest, and asks the executing ones to stop. Returns their
    /// number. The schedule continues.
    pub async fn cancel_manifest(&self, name: &str) -> Result<i64> {
        self.count("cancel_manifest", "name", name).await
    }

    /// Cancels the waiting jobs of a group, and asks the executing ones to stop. Returns their
    /// number.
    pub async fn cancel_group(&self, group: &str) -> Result<i64> {
        self.count("cancel_group", "name", group).await
    }

    /// Queues the work of many dead letters again, and returns their number. Dead letters whose
    /// unique key another job has are skipped.
    pub async fn requeue_dead_letters(&self, which: &DeadLetters) -> Result<i64> {
        Call::new("requeue_dead_letters")
            .option("task", &which.task)
            .option("manifest", &which.manifest)
            .option("group_name", &which.group_name)
            .option("since", &which.since)
            .option("max_count", &which.max_count)
            .value(self.db())
            .await
    }

    /// Creates or changes manifests, groups, rates and tasks to match a document: see `trax.apply`.
    /// `prune` removes those that an earlier document had. With `dry_run` it only reports the
    /// changes.
    pub async fn apply<T: Serialize + ?Sized>(
        &self,
        document: &T,
        prune: bool,
        dry_run: bool,
    ) -> Result<Vec<AppliedChange>> {
        let document = Json::of(document)?;
        let rows = Call::new("apply")
            .arg("document", &document)
            .arg("prune", &prune)
            .arg("dry_run", &dry_run)
            .rows(self.db(), AppliedChange::COLUMNS)
            .await?;
        rows.iter().map(AppliedChange::from_row).collect()
    }

    /// Makes these the only manifests of a source, which is a program or a repository. Creates and
    /// changes those that differ, resets values no longer set to their defaults, and removes
    /// manifests that the source declared before. Returns the changes; empty if there are none.
    ///
    /// Requires the level `admin`.
    ///
    /// # Errors
    /// [`Error::WrongState`](crate::Error::WrongState) if a manifest belongs to another source.
    pub async fn declare(
        &self,
        source: &str,
        manifests: &[Manifest],
    ) -> Result<Vec<AppliedChange>> {
        let document = manifest::document(manifests)?;
        let rows = Call::new("apply")
            .arg("document", &document)
            .arg("prune", &true)
            .arg("source", &source)
            .rows(self.db(), AppliedChange::COLUMNS)
            .await?;
        let changes = rows.iter().map(AppliedChange::from_row);
        let mut changes: Vec<_> = changes.collect::<Result<_>>()?;
        changes.retain(|change| change.action != "unchanged");
        Ok(changes)
    }

    /// Returns the next runs of a manifest, from now.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it does not exist.
    pub async fn preview(&self, name: &str, count: i32) -> Result<Vec<Upcoming>> {
        self.previewed(name, None, count).await
    }

    /// Returns the runs of a manifest that follow a given time. The errors are those of
    /// [`preview`](Self::preview).
    pub async fn preview_after(
        &self,
        name: &str,
        after: SystemTime,
        count: i32,
    ) -> Result<Vec<Upcoming>> {
        self.previewed(name, Some(Time(after)), count).await
    }

    async fn previewed(
        &self,
        name: &str,
        after: Option<Time>,
        count: i32,
    ) -> Result<Vec<Upcoming>> {
        let rows = Call::new("preview")
            .arg("name", &name)
            .option("after", &after)
            .arg("count", &count)
            .rows(self.db(), "run_at, local_time, note")
            .await?;
        let upcoming = |row: &Row| {
            Ok(Upcoming {
                run_at: row.try_get(0)?,
                local_time: row.try_get(1)?,
                note: row.try_get(2)?,
            })
        };
        rows.iter().map(upcoming).collect()
    }

    /// Returns why a manifest does or does not run now.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it does not exist.
    pub async fn explain_manifest(&self, name: &str) -> Result<Vec<Explanation>> {
        self.explained(Call::new("explain_manifest").arg("name", &name))
            .await
    }

    /// Returns why a job waits. A job that does not wait has one reason: `executing`, `departed`,
    /// `dead_letter` or `ended`.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if no such job is known.
    pub async fn explain_job(&self, job_id: JobId) -> Result<Vec<Explanation>> {
        self.explained(Call::new("explain_job").arg("job_id", &job_id.0))
            .await
    }

    async fn explained(&self, call: Call<'_>) -> Result<Vec<Explanation>> {
        let rows = call.rows(self.db(), "reason, detail, action").await?;
        let explanation = |row: &Row| {
            Ok(Explanation {
                reason: row.try_get(0)?,
                detail: row.try_get(1)?,
                action: row.try_get(2)?,
            })
        };
        rows.iter().map(explanation).collect()
    }

    async fn count(&self, function: &'static str, name: &'static str, value: &str) -> Result<i64> {
        Call::new(function).arg(name, &value).value(self.db()).await
    }
}
