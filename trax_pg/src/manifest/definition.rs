//! The stored definition of one manifest.

use crate::error::{Error, Result};
use crate::manifest_state::dependency;
use crate::manifest_state::{NextRun, ParkedOn};
use crate::server::clock::Timestamp;
use crate::server::random::random;
use crate::server::spi::{Spi, SpiRow, SpiRows, arg, statement};
use crate::timing;
use crate::timing::{Kind, Plan, Timing};
use crate::work_queue::NewJob;

statement!(MANIFEST_FIND, "manifest/find.sql", TEXTOID);
statement!(MANIFEST_LOCK, "manifest/lock.sql", TEXTOID);

/// One manifest with its columns for [`Definition::read`]; 3 is the input, 7 the retry delay, 8 the
/// timeout.
pub(super) fn find_row<'spi>(spi: &'spi Spi, name: &str) -> SpiRows<'spi> {
    spi.query(&MANIFEST_FIND, &[arg(name)])
}

/// What is stored of a manifest, as far as its next run and its jobs depend on it.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) task: String,
    pub(crate) group: String,
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
    pub(crate) last_success_at: Option<Timestamp>,
    /// The last occurrence that became a job.
    last_scheduled_for: Option<Timestamp>,
    /// The run to come and the occurrence it stands for.
    pub(crate) next: Option<(Timestamp, Timestamp)>,
}

impl Definition {
    pub(crate) fn read(name: &str, row: &SpiRow) -> Self {
        Self {
            id: row.must(1),
            name: name.to_string(),
            task: row.must(2),
            group: row.must(4),
            priority: i32::from(row.must::<i16>(5)),
            max_retries: row.get(6),
            enabled: row.must(9),
            timing: Timing {
                cron: row.get(10),
                every: row.get(11),
                run_at: row.get(12),
                depends: row.get::<String>(18).is_some(),
                timezone: row.must(13),
                starts_at: row.get(14),
                ends_at: row.get(15),
                variance: row.get(22),
                exclusions: timing::stored_exclusions(row.datum(23)),
            },
            parents: row.must(29),
            depends_mode: row.get(18),
            dormant: row.must(19),
            overlap: row.must(20),
            max_concurrency: row.must(21),
            disabled_reason: row.get(16),
            last_success_at: row.get(17),
            last_scheduled_for: row.get(30),
            next: row.get(24).zip(row.get(25)),
        }
    }

    /// The first run of a schedule that begins, or begins again, now.
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
            // Its one run was queued already; only its outcome is still to come.
            Kind::At(at) if self.last_scheduled_for == Some(plan.put_off(at).at) => {
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

    /// A job of this manifest, claimable now, from its row as [`find_row`] gave it.
    pub(super) fn job(self, row: &SpiRow, now: Timestamp) -> NewJob {
        NewJob {
            task: self.task,
            group: self.group,
            priority: self.priority,
            run_at: now,
            now,
            max_retries: self.max_retries,
            timeout: row.datum(8),
            retry_delay: row.datum(7),
            unique_key: None,
            concurrency_key: None,
            trace: None,
            manifest: Some((self.id, self.name)),
        }
    }

    /// Whether both run at the same times, when they are enabled.
    pub(super) fn runs_as(&self, other: &Self) -> bool {
        self.timing == other.timing
            && self.parents == other.parents
            && self.depends_mode == other.depends_mode
            && self.dormant == other.dormant
    }

    /// A manifest that runs once, and that trax itself switched off: a person gives no reason.
    pub(crate) fn has_had_its_run(&self) -> bool {
        self.disabled_reason.is_some() && self.timing.run_at.is_some()
    }

    /// Whether its overlap policy is not the one that comes by itself.
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
                .detail("Only a dormant dependent is activated; others become due by themselves.")
                .hint(format!(
                    "Use trax.trigger('{}') to run it by hand.",
                    self.name
                )),
        )
    }
}

pub(crate) fn find(spi: &Spi, name: &str) -> Option<Definition> {
    find_row(spi, name)
        .first()
        .map(|row| Definition::read(name, &row))
}

/// The definition of a manifest that is about to change, locked.
pub(crate) fn lock(spi: &Spi, name: &str) -> Option<Definition> {
    spi.query(&MANIFEST_LOCK, &[arg(name)]);
    // Read after the lock: whoever held it may have changed the row.
    find(spi, name)
}

pub(crate) fn must_lock(spi: &Spi, name: &str) -> Result<Definition> {
    lock(spi, name).ok_or_else(|| Error::unknown_manifest(name))
}
