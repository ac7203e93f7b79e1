//! When each manifest is due next, or the reason on which it is parked.
//!
//! Words: a *parked* manifest is due but may not be queued now; it costs the cycle nothing. Any
//! event that ends the reason makes it due again, and the next cycle decides again, so that an
//! event need not know every reason.

pub(crate) mod dependency;
pub(crate) mod job_ended;
mod rearm;

use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, array_arg, statement};
use crate::wake;
use pgrx::pg_sys;
pub(crate) use rearm::{Rearm, continue_manifest, rearm};

statement!(ManifestBusy, "manifest_state/busy.sql", { manifest_ids: INT8ARRAYOID } -> i64);
statement!(ManifestHold, "manifest_state/lock_definitions.sql", { manifest_ids: INT8ARRAYOID });
statement!(
    ManifestStateRepair, "manifest_state/repair.sql",
    { parked_before: TIMESTAMPTZOID, at_most: INT8OID }
);
statement!(
    ManifestUnpark, "manifest_state/unpark.sql",
    { manifest_id: INT8OID, group: TEXTOID, reasons: TEXTARRAYOID }
);
statement!(ManifestParkedGroup, "manifest_state/parked_group.sql", { groups: TEXTARRAYOID } -> i64);
statement!(ManifestUnparkGroup, "manifest_state/unpark_group.sql", { manifest_ids: INT8ARRAYOID });
statement!(
    ManifestAwait, "manifest_state/await.sql",
    { manifest_id: INT8OID, now: TIMESTAMPTZOID }
);
statement!(
    ManifestArm, "manifest_state/arm.sql",
    {
        manifest_id: INT8OID,
        group: TEXTOID,
        next_run_at: TIMESTAMPTZOID,
        next_scheduled_for: TIMESTAMPTZOID,
        parked_on: TEXTOID,
        now: TIMESTAMPTZOID,
    }
);
statement!(
    ManifestSwitchOff, "manifest_state/switch_off.sql",
    { manifest_id: INT8OID, group: TEXTOID, now: TIMESTAMPTZOID }
);
statement!(
    ManifestResume, "manifest_state/resume.sql",
    { manifest_id: INT8OID, group: TEXTOID, now: TIMESTAMPTZOID }
);
statement!(ManifestLockStates, "manifest_state/lock_states.sql", { manifest_ids: INT8ARRAYOID });
statement!(
    ManifestMove, "manifest_state/move.sql",
    {
        manifest_ids: INT8ARRAYOID,
        was: TIMESTAMPTZARRAYOID,
        next_run_at: TIMESTAMPTZARRAYOID,
        occurrences: TIMESTAMPTZARRAYOID,
        now: TIMESTAMPTZOID,
    }
);

/// How long a manifest is parked before the repair checks it, in microseconds.
const PARKED_MICROS: i64 = 10 * 60 * 1_000_000;
/// The most manifests that one pass checks.
const REPAIR_AT_MOST: i64 = 1000;

/// The reason for which a manifest waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkedOn {
    Disabled,
    GroupDisabled,
    DeadLetter,
    Queued,
    Executing,
    Outcome,
    Ended,
}

impl ParkedOn {
    /// Returns the text in the check constraint of `trax.manifest_state`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::GroupDisabled => "group_disabled",
            Self::DeadLetter => "dead_letter",
            Self::Queued => "queued",
            Self::Executing => "executing",
            Self::Outcome => "outcome",
            Self::Ended => "ended",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [
            Self::Disabled,
            Self::GroupDisabled,
            Self::DeadLetter,
            Self::Queued,
            Self::Executing,
            Self::Outcome,
            Self::Ended,
        ]
        .into_iter()
        .find(|reason| reason.as_str() == text)
    }
}

/// When a manifest runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRun {
    /// At the first time, for the occurrence of the second; they differ by the random part of a
    /// variance.
    At(Timestamp, Timestamp),
    /// Only when triggered.
    Never,
    Parked(ParkedOn),
}

impl NextRun {
    pub(crate) fn run_at(&self) -> Option<Timestamp> {
        match self {
            Self::At(at, _) => Some(*at),
            Self::Never | Self::Parked(_) => None,
        }
    }

    pub(crate) fn occurrence(&self) -> Option<Timestamp> {
        match self {
            Self::At(_, occurrence) => Some(*occurrence),
            Self::Never | Self::Parked(_) => None,
        }
    }

    pub(crate) fn parked_on(&self) -> Option<ParkedOn> {
        match self {
            Self::Parked(reason) => Some(*reason),
            Self::At(..) | Self::Never => None,
        }
    }
}

/// Locks definitions, in ascending order.
pub(crate) fn lock_definitions(spi: &Spi, manifests: Vec<i64>) {
    spi.query(ManifestHold {
        manifest_ids: arg(manifests),
    });
}

/// Locks states, in ascending order.
pub(crate) fn lock(spi: &Spi, manifests: Vec<i64>) {
    spi.query(ManifestLockStates {
        manifest_ids: arg(manifests),
    });
}

/// Locks the state of manifests that the end of a job, or of its dead letter, may change, in
/// ascending order.
pub(crate) fn lock_for_outcome(spi: &Spi, manifests: Vec<i64>) {
    lock_definitions(spi, manifests.clone());
    lock(spi, manifests);
}

/// Returns the manifests that another transaction has locked; the others are ready for
/// [`job_ended`].
pub(crate) fn busy(spi: &Spi, manifests: Vec<i64>) -> Vec<i64> {
    if manifests.is_empty() {
        return manifests;
    }
    let rows = spi.query(ManifestBusy {
        manifest_ids: arg(manifests),
    });
    rows.iter().collect()
}

/// Makes a manifest due again that was parked on one of `reasons`, and stores its group if it may
/// be another one.
fn unpark(spi: &Spi, manifest_id: i64, group: Option<&str>, reasons: &[ParkedOn]) {
    wake::mark(wake::DUE);
    let reasons: Vec<String> = reasons.iter().map(|one| one.as_str().to_owned()).collect();
    spi.execute(ManifestUnpark {
        manifest_id: arg(manifest_id),
        group: group.and_then(arg),
        reasons: arg(reasons),
    });
}

/// Parks a manifest that is disabled; its next run is kept.
fn switch_off(spi: &Spi, manifest_id: i64, group: &str, now: Timestamp) {
    if spi.execute(ManifestSwitchOff {
        manifest_id: arg(manifest_id),
        group: arg(group),
        now: arg(now),
    }) == 0
    {
        let next = NextRun::Parked(ParkedOn::Disabled);
        arm(spi, manifest_id, group, next, now);
    }
}

/// Makes an enabled manifest due again if an occurrence came meanwhile.
fn resume(spi: &Spi, manifest_id: i64, group: &str, now: Timestamp) -> bool {
    wake::mark(wake::DUE);
    spi.execute(ManifestResume {
        manifest_id: arg(manifest_id),
        group: arg(group),
        now: arg(now),
    }) > 0
}

/// Returns the manifests that are parked because their group is disabled.
pub(crate) fn parked_on_groups(spi: &Spi, groups: Vec<String>) -> Vec<i64> {
    let rows = spi.query(ManifestParkedGroup {
        groups: arg(groups),
    });
    rows.iter().collect()
}

/// Makes manifests due again that were parked because their group was disabled.
pub(crate) fn unpark_of_groups(spi: &Spi, manifests: &[i64]) {
    wake::mark(wake::DUE);
    lock(spi, manifests.to_vec());
    spi.execute(ManifestUnparkGroup {
        manifest_ids: arg(manifests.to_vec()),
    });
}

/// Makes manifests due again that have long been parked, in case the end of the reason was missed
/// (a row deleted by hand); the next cycle parks again those with a remaining reason.
pub(crate) fn repair(spi: &Spi, now: Timestamp) {
    spi.execute(ManifestStateRepair {
        parked_before: arg(now.plus(-PARKED_MICROS)),
        at_most: arg(REPAIR_AT_MOST),
    });
}

/// Keeps a manifest parked on a dead letter until the job that replaced it has its outcome.
pub(crate) fn await_requeued(spi: &Spi, manifest_id: i64, now: Timestamp) {
    spi.execute(ManifestAwait {
        manifest_id: arg(manifest_id),
        now: arg(now),
    });
}

/// Sets when a manifest is due, or the reason on which it is parked.
fn arm(spi: &Spi, manifest_id: i64, group: &str, next: NextRun, now: Timestamp) {
    wake::mark(wake::DUE);
    spi.execute(ManifestArm {
        manifest_id: arg(manifest_id),
        group: arg(group),
        next_run_at: next.run_at().and_then(arg),
        next_scheduled_for: next.occurrence().and_then(arg),
        parked_on: next.parked_on().map(ParkedOn::as_str).and_then(arg),
        now: arg(now),
    });
}

/// A next run that is to move from `was` to another time.
pub(crate) struct Move {
    pub(crate) manifest_id: i64,
    pub(crate) was: Timestamp,
    pub(crate) run_at: Timestamp,
    pub(crate) occurrence: Timestamp,
}

/// Moves next runs, except those that another transaction has locked or moved. Returns how many
/// were moved.
pub(crate) fn move_next_runs(spi: &Spi, moves: &[Move], now: Timestamp) -> usize {
    if moves.is_empty() {
        return 0;
    }
    wake::mark(wake::DUE);
    let ids: Vec<i64> = moves.iter().map(|one| one.manifest_id).collect();
    let times = |time: fn(&Move) -> Timestamp| {
        let times: Vec<Option<pg_sys::Datum>> = moves.iter().map(|one| arg(time(one))).collect();
        array_arg(pg_sys::TIMESTAMPTZOID, &times)
    };
    spi.execute(ManifestMove {
        manifest_ids: arg(ids),
        was: times(|one| one.was),
        next_run_at: times(|one| one.run_at),
        occurrences: times(|one| one.occurrence),
        now: arg(now),
    })
}
