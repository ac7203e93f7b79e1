//! The effect of the end of jobs on their manifests: the next run, and the runs of dependents.

use crate::manifest_state::dependency;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, row, statement};
use crate::{manifest_state, wake};
use std::collections::BTreeMap;

statement!(ManifestAwaitsOnlyRun, "manifest_state/awaits_only_run.sql", { manifest_id: INT8OID });
row! {
    struct Settled {
        manifest_id: i64,
        has_had_its_run: bool,
    }
}
statement!(
    ManifestSettle, "manifest_state/job_ended.sql",
    {
        manifest_ids: INT8ARRAYOID,
        succeeded: BOOLARRAYOID,
        done: BOOLARRAYOID,
        now: TIMESTAMPTZOID,
    } -> Settled
);
statement!(
    ManifestRetire, "manifest_state/retire.sql",
    { manifest_ids: INT8ARRAYOID, now: TIMESTAMPTZOID }
);

/// A job that ended for good.
pub(crate) struct Ended {
    pub(crate) job_id: i64,
    pub(crate) manifest_id: Option<i64>,
    pub(crate) unique_key: Option<String>,
    /// The job that spawned it, or whose steps it undoes: others may need its end.
    pub(crate) parent_job_id: Option<i64>,
    pub(crate) succeeded: bool,
    /// The occurrence counts as done: completed or cancelled, not a dead letter.
    pub(crate) done: bool,
}

/// Ends the only run of a manifest that runs once and still waits for the outcome of that run: a
/// dead letter is no longer an obstacle.
pub(crate) fn settle_only_run(spi: &Spi, manifest_id: i64, now: Timestamp) {
    if awaits_only_run(spi, manifest_id) {
        let done = BTreeMap::from([(manifest_id, (false, true))]);
        settle(spi, &done, &[], now);
    }
}

/// Returns whether a manifest that runs once waits for the outcome of that run.
fn awaits_only_run(spi: &Spi, manifest_id: i64) -> bool {
    spi.query(ManifestAwaitsOnlyRun {
        manifest_id: arg(manifest_id),
    })
    .len()
        == 1
}

/// Lets the manifests of jobs that ended for good continue.
pub(crate) fn continue_manifests(spi: &Spi, ended: &[Ended], now: Timestamp) {
    // Several jobs of one manifest may end together; rows are locked in ascending order.
    let mut manifests: BTreeMap<i64, (bool, bool)> = BTreeMap::new();
    for job in ended {
        if let Some(manifest_id) = job.manifest_id {
            let (succeeded, done) = manifests.entry(manifest_id).or_default();
            *succeeded |= job.succeeded;
            *done |= job.done;
        }
    }
    if manifests.is_empty() {
        return;
    }
    wake::mark(wake::DUE);
    let succeeded: Vec<(i64, i64)> = ended
        .iter()
        .filter(|job| job.succeeded)
        .filter_map(|job| Some((job.manifest_id?, job.job_id)))
        .collect();
    settle(spi, &manifests, &succeeded, now);
}

/// Lets manifests continue; each comes with whether a job of it completed and whether an occurrence
/// is done. `succeeded` pairs the jobs that succeeded with their manifests.
fn settle(
    spi: &Spi,
    manifests: &BTreeMap<i64, (bool, bool)>,
    succeeded: &[(i64, i64)],
    now: Timestamp,
) {
    let ids: Vec<i64> = manifests.keys().copied().collect();
    // A definition is locked before its state, here as in a change.
    manifest_state::lock_definitions(spi, ids.clone());
    let children = lock_states(spi, manifests, succeeded);
    let completed: Vec<bool> = manifests
        .values()
        .map(|&(completed, _)| completed)
        .collect();
    let done: Vec<bool> = manifests.values().map(|&(_, done)| done).collect();
    let rows = spi.query(ManifestSettle {
        manifest_ids: arg(ids),
        succeeded: arg(completed),
        done: arg(done),
        now: arg(now),
    });
    let retired: Vec<i64> = rows
        .iter()
        .filter(|settled| settled.has_had_its_run)
        .map(|settled| settled.manifest_id)
        .collect();
    if !retired.is_empty() {
        spi.execute(ManifestRetire {
            manifest_ids: arg(retired),
            now: arg(now),
        });
    }
    dependency::satisfy(spi, succeeded, &children, now);
}

/// Locks the states of manifests and of the children of those that succeeded, all in one ascending
/// order, and returns the children. Later reads see the commits of the locks' previous holders.
fn lock_states(
    spi: &Spi,
    manifests: &BTreeMap<i64, (bool, bool)>,
    succeeded: &[(i64, i64)],
) -> Vec<i64> {
    let parents: Vec<i64> = succeeded.iter().map(|&(parent, _)| parent).collect();
    let children = if parents.is_empty() {
        Vec::new()
    } else {
        dependency::children(spi, &parents)
    };
    let mut states: Vec<i64> = manifests
        .keys()
        .copied()
        .chain(children.iter().copied())
        .collect();
    states.sort_unstable();
    states.dedup();
    manifest_state::lock(spi, states);
    children
}
