//! The stored definition of one manifest.

use crate::error::{Error, Result};
use crate::manifest_state;
use crate::server::clock::Timestamp;
use crate::server::quote::literal;
use crate::server::spi::{Spi, arg, row, statement};
use crate::timing;
use crate::timing::Timing;
use crate::work_queue::NewJob;
use pgrx::datum::Interval;
use pgrx::pg_sys;

statement!(ManifestFind, "manifest/find.sql", { name: TEXTOID } -> (Written, Related));
row! {
    struct LockedRow {
        manifest_id: i64,
        row: Option<pg_sys::Datum>,
    }
}
statement!(ManifestLock, "manifest/lock.sql", { name: TEXTOID } -> LockedRow);

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
    struct Related {
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
    let (row, related) = spi.query(ManifestFind { name: arg(name) }).first()?;
    let defaults = JobDefaults {
        input: row.input,
        retry_delay: row.retry_delay,
        timeout: row.timeout,
    };
    let mut definition = Definition::of(name, row);
    definition.parents = related.parents;
    definition.last_success_at = related.last_success_at;
    definition.last_scheduled_for = related.last_scheduled_for;
    definition.next = related.next_run_at.zip(related.next_scheduled_for);
    Some((definition, defaults))
}

/// A manifest that is about to change: its definition and its state are locked. The data live
/// until SPI is closed.
pub(super) struct Locked {
    pub(super) definition: Definition,
    pub(super) input: Option<pg_sys::Datum>,
    /// Its row of `trax.manifest`, as JSON.
    pub(super) row: Option<pg_sys::Datum>,
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
    pub(super) overlap: String,
    pub(super) max_concurrency: i32,
    /// An unresolved dead letter does not stop its schedule.
    pub(super) continues: bool,
    pub(crate) last_success_at: Option<Timestamp>,
    /// The last occurrence that became a job.
    pub(super) last_scheduled_for: Option<Timestamp>,
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

    /// Returns the definition with these parents that a change wrote over `before`. No success of
    /// another schedule counts.
    pub(super) fn written(
        name: &str,
        row: Written,
        before: Option<&Self>,
        parents: Vec<String>,
    ) -> Self {
        let mut after = Self::of(name, row);
        after.parents = parents;
        if let Some(before) = before {
            let is_same = before.timing == after.timing;
            after.last_success_at = before.last_success_at.filter(|_| is_same);
            after.last_scheduled_for = before.last_scheduled_for;
            after.next = before.next;
        }
        after
    }

    /// Returns a job of this manifest, claimable now.
    pub(super) fn job(self, defaults: &JobDefaults, now: Timestamp) -> NewJob {
        NewJob {
            priority: self.priority,
            max_retries: self.max_retries,
            timeout: defaults.timeout,
            retry_delay: defaults.retry_delay,
            run_as: self.run_as,
            manifest: Some((self.id, self.name)),
            ..NewJob::plain(self.task, self.group, now)
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

    /// Returns whether it runs once and trax itself disabled it: when a user does, no reason is
    /// stored.
    pub(crate) fn has_had_its_run(&self) -> bool {
        self.disabled_reason.is_some() && self.timing.run_at.is_some()
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

/// Locks and reads a manifest that is about to change. The completion of a parent either fires it
/// afterwards, or is visible in this transaction.
pub(super) fn lock(spi: &Spi, name: &str) -> Option<Locked> {
    let locked = spi.query(ManifestLock { name: arg(name) }).first()?;
    manifest_state::lock(spi, vec![locked.manifest_id]);
    // Read after the locks: their previous holders may have changed the rows.
    let (definition, defaults) = find_for_job(spi, name)?;
    Some(Locked {
        definition,
        input: defaults.input,
        row: locked.row,
    })
}

pub(super) fn must_lock(spi: &Spi, name: &str) -> Result<Definition> {
    let locked = lock(spi, name).ok_or_else(|| Error::unknown_manifest(name))?;
    Ok(locked.definition)
}
