//! The stored definition of one manifest.

use crate::error::{Error, Result};
use crate::manifest_state;
use crate::manifest_state::dependency;
use crate::manifest_state::{NextRun, ParkedOn};
use crate::server::clock::Timestamp;
use crate::server::quote::literal;
use crate::server::random::random;
use crate::server::spi::{Spi, arg, row, statement};
use crate::timing;
use crate::timing::{Kind, Plan, Timing};
use crate::work_queue::NewJob;
use pgrx::datum::Interval;
use pgrx::pg_sys;

statement!(ManifestFind, "manifest/find.sql", { name: TEXTOID } -> (Written, Around));
statement!(ManifestLock, "manifest/lock.sql", { name: TEXTOID });

row! {
    /// A manifest as stored.
    pub(super) struct Written {
        manifest_id: i64,
        task: String,
        input: Option<pg_sys::Datum>,
        group_name: String,
        priority: i16,
        max_retries: Option<i32>,
        retry_delay: Option<pg_sys::Datum>,
        timeout: Option<pg_sys::Datum>,
        enabled: bool,
        cron: Option<String>,
        every: Option<Interval>,
        run_at: Option<Timestamp>,
        timezone: String,
        starts_at: Option<Timestamp>,
        ends_at: Option<Timestamp>,
        disabled_reason: Option<String>,
        depends_mode: Option<String>,
        dormant: bool,
        overlap: String,
        max_concurrency: i32,
        variance: Option<Interval>,
        exclusions: Option<pg_sys::Datum>,
        on_dead_letter: String,
        run_as: Option<String>,
    }
}
row! {
    /// Data of a manifest that other tables store.
    struct Around {
        last_success_at: Option<Timestamp>,
        next_run_at: Option<Timestamp>,
        next_scheduled_for: Option<Timestamp>,
        last_scheduled_for: Option<Timestamp>,
        parents: Vec<String>,
    }
}

/// The values that a job takes from its manifest, and that nothing else uses.
pub(super) struct JobDefaults {
    pub(super) input: Option<pg_sys::Datum>,
    retry_delay: Option<pg_sys::Datum>,
    timeout: Option<pg_sys::Datum>,
}

/// Returns a manifest, and the defaults of its jobs, which live until SPI is closed.
pub(super) fn find_for_job(spi: &Spi, name: &str) -> Option<(Definition, JobDefaults)> {
    let (row, around) = spi.query(ManifestFind { name: arg(name) }).first()?;
    let defaults = JobDefaults {
        input: row.input,
        retry_delay: row.retry_delay,
        timeout: row.timeout,
    };
    let mut definition = Definition::of(name, row);
    definition.parents = around.parents;
    definition.last_success_at = around.last_success_at;
    definition.last_scheduled_for = around.last_scheduled_for;
    definition.next = around.next_run_at.zip(around.next_scheduled_for);
    Some((definition, defaults))
}

/// The stored manifest, as far as its next run and its jobs depend on it.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) task: String,
    pub(crate) group: String,
    pub(super) run_as: Option<String>,
    pub(crate) priority: i32,
    pub(crate) max_retries: Option<i32>,
    pub(crate) enabled: bool,
    disabled_reason: Option<String>,
    pub(crate) timing: Timing,
    pub(crate) parents: Vec<String>,
    pub(super) depends_mode: Option<String>,
    pub(super) dormant: bool,
    overlap: String,
    max_concurrency: i32,
    /// An unresolved dead letter does not stop its schedule.
    pub(super) continues: bool,
    pub(crate) last_success_at: Option<Timestamp>,
    /// The last occurrence that became a job.
    last_scheduled_for: Option<Timestamp>,
    /// The next run and the occurrence it stands for.
    pub(crate) next: Option<(Timestamp, Timestamp)>,
}

impl Definition {
    /// Returns the manifest of a row; the data of other tables is left empty.
    fn of(name: &str, row: Written) -> Self {
        Self {
            id: row.manifest_id,
            name: name.to_string(),
            task: row.task,
            group: row.group_name,
            run_as: row.run_as,
            priority: i32::from(row.priority),
            max_retries: row.max_retries,
            enabled: row.enabled,
            timing: Timing {
                cron: row.cron,
                every: row.every,
                run_at: row.run_at,
                depends: row.depends_mode.is_some(),
                timezone: row.timezone,
                starts_at: row.starts_at,
                ends_at: row.ends_at,
                variance: row.variance,
                exclusions: timing::stored_exclusions(row.exclusions),
            },
            parents: Vec::new(),
            depends_mode: row.depends_mode,
            dormant: row.dormant,
            overlap: row.overlap,
            max_concurrency: row.max_concurrency,
            continues: row.on_dead_letter == "continue",
            disabled_reason: row.disabled_reason,
            last_success_at: None,
            last_scheduled_for: None,
            next: None,
        }
    }

    /// Returns the definition that a change wrote over `before`; the change keeps or replaces the
    /// parents of `before`.
    pub(super) fn written(
        name: &str,
        row: Written,
        before: Option<&Self>,
        parents: Option<&[String]>,
    ) -> Self {
        let mut after = Self::of(name, row);
        if let Some(before) = before {
            after.parents.clone_from(&before.parents);
            after.last_success_at = before.last_success_at;
            after.last_scheduled_for = before.last_scheduled_for;
            after.next = before.next;
        }
        if let Some(parents) = parents {
            after.parents = parents.to_vec();
            after.parents.sort_unstable();
            after.parents.dedup();
        }
        after
    }

    /// Locks the state that the end of a job may change, and reads it again: the completion of a
    /// parent either fires this manifest afterwards or is visible here.
    pub(super) fn lock_for_outcome(&mut self, spi: &Spi) {
        if let Some(state) = manifest_state::lock_one_for_outcome(spi, self.id) {
            self.last_success_at = state.last_success_at;
            self.last_scheduled_for = state.last_scheduled_for;
        }
    }

    /// Returns the first run of a schedule that begins, or begins again, now.
    pub(crate) fn first_run(&self, spi: &Spi, plan: &Plan, now: Timestamp) -> Result<NextRun> {
        if !self.enabled {
            return Ok(NextRun::Parked(ParkedOn::Disabled));
        }
        match plan.kind {
            Kind::Never => Ok(NextRun::Never),
            Kind::Depends if !self.dormant && dependency::is_satisfied(spi, self.id) => {
                Ok(NextRun::At(now, now))
            }
            Kind::Depends => Ok(NextRun::Never),
            // Its only run was queued already; only the outcome is still to come.
            Kind::At(at) if self.last_scheduled_for == Some(plan.once(at).at) => {
                let live = !super::jobs(spi, self.id).is_empty();
                Ok(NextRun::Parked(if live {
                    ParkedOn::Outcome
                } else {
                    ParkedOn::Ended
                }))
            }
            Kind::Cron(_) | Kind::Every(_) | Kind::At(_) => {
                Ok(match plan.first(now, self.last_success_at) {
                    Some(first) => NextRun::At(plan.vary(first.at, random()), first.at),
                    None => NextRun::Parked(ParkedOn::Ended),
                })
            }
        }
    }

    /// Returns a job of this manifest, claimable now.
    pub(super) fn job(self, defaults: &JobDefaults, now: Timestamp) -> NewJob {
        NewJob {
            task: self.task,
            group: self.group,
            priority: self.priority,
            run_at: now,
            now,
            max_retries: self.max_retries,
            timeout: defaults.timeout,
            retry_delay: defaults.retry_delay,
            unique_key: None,
            unique_for: None,
            replaces: None,
            concurrency_key: None,
            trace: None,
            run_as: self.run_as,
            manifest: Some((self.id, self.name)),
        }
    }

    /// Returns an error for an input to a statement: its owner decides what it runs.
    pub(super) fn refuse_input(&self, input: Option<pg_sys::Datum>) -> Result<()> {
        if self.run_as.is_none() || input.is_none() {
            return Ok(());
        }
        let name = &self.name;
        Err(
            Error::invalid(format!("manifest \"{name}\" takes no input"))
                .detail("It is a statement that the server runs.")
                .hint("Leave the input out."),
        )
    }

    /// Returns whether both run at the same times, when they are enabled.
    pub(super) fn runs_as(&self, other: &Self) -> bool {
        self.timing == other.timing
            && self.parents == other.parents
            && self.depends_mode == other.depends_mode
            && self.dormant == other.dormant
    }

    /// Returns whether it runs once and trax itself disabled it: when a user does, no reason is
    /// stored.
    pub(crate) fn has_had_its_run(&self) -> bool {
        self.disabled_reason.is_some() && self.timing.run_at.is_some()
    }

    /// Returns whether its overlap policy is not the default.
    pub(crate) fn chose_overlap(&self) -> bool {
        let default = if self.max_concurrency > 1 {
            "allow"
        } else {
            "queue"
        };
        self.overlap != default
    }

    pub(crate) fn refuse_unless_dormant(&self) -> Result<()> {
        if self.dormant {
            return Ok(());
        }
        Err(
            Error::wrong_state(format!("manifest \"{}\" is not dormant", self.name))
                .detail("Only dormant manifests can be activated; others become due by themselves.")
                .hint(format!(
                    "Use trax.trigger({}) to run it by hand.",
                    literal(&self.name)
                )),
        )
    }
}

pub(crate) fn find(spi: &Spi, name: &str) -> Option<Definition> {
    find_for_job(spi, name).map(|(definition, _)| definition)
}

/// Returns the definition of a manifest that is about to change, locked.
pub(crate) fn lock(spi: &Spi, name: &str) -> Option<Definition> {
    spi.query(ManifestLock { name: arg(name) });
    // Read after the lock: its previous holder may have changed the row.
    find(spi, name)
}

pub(crate) fn must_lock(spi: &Spi, name: &str) -> Result<Definition> {
    lock(spi, name).ok_or_else(|| Error::unknown_manifest(name))
}
