//! Manifests, groups, dead letters, and the scheduler.

use super::{Client, unknown};

use tokio_postgres::GenericClient;

use crate::access::{Access, Role};
use crate::error::{Error, Result};
use crate::health::{DeadLetter, SchedulerStart, StatusLine, Step, Violation};
use crate::id::JobId;
use crate::json::Json;
use crate::manifest::{Group, Manifest};
use crate::queue::check_count;
use crate::sql::Call;

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Creates or changes a manifest and returns its id. Values that are not set keep their current
    /// value. Jobs that wait or run keep their options; a new schedule counts from now.
    pub async fn schedule(&self, manifest: &Manifest) -> Result<i64> {
        manifest.store(self.db).await
    }

    /// Removes a manifest and cancels its waiting jobs. Executing jobs continue.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it does not exist.
    pub async fn unschedule(&self, name: &str) -> Result<()> {
        Call::new("unschedule")
            .arg("name", &name)
            .run(self.db)
            .await
    }

    /// Enables a manifest. Its misfire policy applies to the runs it missed while disabled.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it does not exist.
    pub async fn enable_manifest(&self, name: &str) -> Result<()> {
        Call::new("enable_manifest")
            .arg("name", &name)
            .run(self.db)
            .await
    }

    /// Disables a manifest. Jobs that wait or run continue.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it does not exist.
    pub async fn disable_manifest(&self, name: &str) -> Result<()> {
        Call::new("disable_manifest")
            .arg("name", &name)
            .run(self.db)
            .await
    }

    /// Queues a job of a manifest now, with `input` in place of the manifest's input if given, and
    /// returns its id. Works while the manifest is disabled.
    ///
    /// # Errors
    /// [`Error::UnknownName`](crate::Error::UnknownName) (42704) if it does not exist.
    pub async fn trigger(&self, name: &str, input: Option<Json>) -> Result<JobId> {
        let call = Call::new("trigger")
            .arg("name", &name)
            .option("input", &input);
        Ok(JobId(call.value(self.db).await?))
    }

    /// Creates or changes the settings of a group. Values that are not set keep their current
    /// value.
    pub async fn configure_group(&self, name: &str, group: &Group) -> Result<()> {
        Call::new("configure_group")
            .arg("name", &name)
            .option("max_active_jobs", &group.max_active_jobs)
            .option("priority", &group.priority)
            .option("enabled", &group.enabled)
            .option("max_per_key", &group.max_per_key)
            .option("rate", &group.rate)
            .option("max_waiting", &group.max_waiting)
            .option("overflow", &group.overflow)
            .run(self.db)
            .await
    }

    /// Runs one manager cycle and returns its steps; empty if another cycle was running.
    pub async fn tick(&self) -> Result<Vec<Step>> {
        let rows = Call::new("tick").rows(self.db, Step::COLUMNS).await?;
        rows.iter().map(Step::from_row).collect()
    }

    /// Pauses the scheduler of this database until `resume`, across restarts of the server. Workers
    /// still claim jobs; no SQL job begins.
    pub async fn pause(&self, reason: Option<&str>) -> Result<()> {
        Call::new("pause")
            .option("reason", &reason)
            .run(self.db)
            .await
    }

    /// Resumes a paused scheduler.
    pub async fn resume(&self) -> Result<()> {
        Call::new("resume").run(self.db).await
    }

    /// Accepts the server's clock at once after a jump. Otherwise it is accepted once it has held
    /// for ten minutes; until then nothing is dropped and nothing times out. Returns false if the
    /// clock had not jumped.
    pub async fn believe_clock(&self) -> Result<bool> {
        Call::new("believe_clock").value(self.db).await
    }

    /// Makes the jobs in a copy of a database (a restored dump, a clone) belong to it, so that they
    /// run. A copy of a shard of a router is refused: its groups may have moved to other shards
    /// since.
    ///
    /// # Errors
    /// [`Error::WrongState`](crate::Error::WrongState) for a copy of a shard; the hint says what to
    /// type.
    pub async fn adopt(&self) -> Result<()> {
        Call::new("adopt").run(self.db).await
    }

    /// Starts the scheduler of this database. If the server does not preload the library, the
    /// scheduler runs until the next restart.
    pub async fn start_scheduler(&self) -> Result<SchedulerStart> {
        let verdict: String = Call::new("start_scheduler").value(self.db).await?;
        match verdict.as_str() {
            "started" => Ok(SchedulerStart::Started),
            "already running" => Ok(SchedulerStart::AlreadyRunning),
            other => Err(unknown("trax.start_scheduler", other)),
        }
    }

    /// Sets the access level of a role, for all tasks and groups. `role` is its name without
    /// quotes.
    pub async fn grant_access(&self, role: &str, level: Access) -> Result<()> {
        self.grant_limited_access(role, level, None, None).await
    }

    /// Sets the access level of a role. A producer or worker can be limited to these tasks and
    /// groups; `None` means all.
    pub async fn grant_limited_access(
        &self,
        role: &str,
        level: Access,
        tasks: Option<&[String]>,
        groups: Option<&[String]>,
    ) -> Result<()> {
        let tasks = tasks.map(<[String]>::to_vec);
        let groups = groups.map(<[String]>::to_vec);
        Call::new("grant_access")
            .arg("role", &Role(role))
            .arg("level", &level.name())
            .option("tasks", &tasks)
            .option("groups", &groups)
            .run(self.db)
            .await
    }

    /// Returns a line for each component: whether it is healthy and, if not, the action to take.
    /// Counts of waiting jobs stop at 1,000,000.
    pub async fn status(&self) -> Result<Vec<StatusLine>> {
        let rows = Call::new("status")
            .rows(self.db, StatusLine::COLUMNS)
            .await?;
        rows.iter().map(StatusLine::from_row).collect()
    }

    /// Returns the violated invariants; empty if there are none. Of the history, only jobs that
    /// ended within the last hour are checked.
    pub async fn check(&self) -> Result<Vec<Violation>> {
        let rows = Call::new("check").rows(self.db, Violation::COLUMNS).await?;
        rows.iter().map(Violation::from_row).collect()
    }

    /// Returns at most `limit` dead letters that await intervention, oldest first.
    pub async fn dead_letters(&self, limit: i64) -> Result<Vec<DeadLetter>> {
        check_count("dead_letters", limit)?;
        let sql = "select id, job_id, manifest, task, status, reason, attempts, last_error, \
                   created_at from trax.dead_letter \
                   where status = 'awaiting_intervention' order by id limit $1";
        let rows = self
            .db
            .query_typed(sql, &[(&limit, tokio_postgres::types::Type::INT8)])
            .await
            .map_err(|error| Error::from(error).of_read())?;
        rows.iter().map(DeadLetter::from_row).collect()
    }

    /// Queues the work of a dead letter as a new job with new attempts, and returns the new job's
    /// id.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) (23505) while another job has its unique key.
    pub async fn requeue_dead_letter(&self, id: i64, note: Option<&str>) -> Result<JobId> {
        let call = Call::new("requeue_dead_letter")
            .arg("id", &id)
            .option("note", &note);
        Ok(JobId(call.value(self.db).await?))
    }

    /// Closes a dead letter without running anything, which lets the schedule of its manifest
    /// continue. Returns false if it was closed already.
    pub async fn acknowledge_dead_letter(&self, id: i64, note: Option<&str>) -> Result<bool> {
        Call::new("acknowledge_dead_letter")
            .arg("id", &id)
            .option("note", &note)
            .value(self.db)
            .await
    }
}
