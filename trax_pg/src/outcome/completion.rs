//! Completions: turns leases into runs, a batch at once and without a statement.
//!
//! Leases are taken in ascending order of their jobs, as in every outcome. If another transaction
//! is changing a lease, the completion waits: afterwards the lease is gone, and lost, or only
//! extended, and still held.

use super::Returned;
use crate::columns::{Leased, Outcome, Run};
use crate::error::{Error, Result};
use crate::job_steps;
use crate::lease::Held;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, keeps_snapshot};
use crate::server::table::{Index, Inserter, Row, Table, Taken, View, Walk};
use crate::server::toast;
use crate::unreadable_job;
use pgrx::pg_sys;

/// Columns that a run copies from its lease.
const SAME: [(Run, Leased); 22] = [
    (Run::JobId, Leased::JobId),
    (Run::QueuedAt, Leased::QueuedAt),
    (Run::RunAt, Leased::RunAt),
    (Run::ScheduledFor, Leased::ScheduledFor),
    (Run::StartedAt, Leased::StartedAt),
    (Run::ManifestId, Leased::ManifestId),
    (Run::Attempt, Leased::Attempt),
    (Run::Priority, Leased::Priority),
    (Run::Task, Leased::Task),
    (Run::GroupName, Leased::GroupName),
    (Run::Manifest, Leased::Manifest),
    (Run::Worker, Leased::Worker),
    (Run::ParentJobId, Leased::ParentJobId),
    (Run::Version, Leased::Version),
    (Run::Rate, Leased::Rate),
    (Run::RateKey, Leased::RateKey),
    (Run::Cost, Leased::Cost),
    (Run::MaxRetries, Leased::MaxRetries),
    (Run::Timeout, Leased::Timeout),
    (Run::RetryDelay, Leased::RetryDelay),
    (Run::ConcurrencyKey, Leased::ConcurrencyKey),
    (Run::Trace, Leased::Trace),
];

/// Moves the leases that are still held into `trax.run`; returns their rows in ascending order of
/// jobs.
pub(super) fn record(
    spi: &Spi,
    held: &Held,
    returned: &[Returned],
    now: Timestamp,
) -> Result<Vec<Row>> {
    let mut ended: Vec<(Row, Returned)> = Vec::with_capacity(returned.len());
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let index = Index::open(&leases, c"lease_pkey");
    let order = held.order();
    let mut left = order.as_slice();
    while !left.is_empty() {
        let view = View::of_transaction();
        let mut walk = Walk::begin(&index, &view, Leased::JobId);
        while let [index, later @ ..] = left {
            let taken = if held.finds(&mut walk, *index, later) {
                leases.delete(walk.scan().tid(), &view, true)
            } else {
                Taken::No
            };
            match taken {
                Taken::Yes => ended.push((walk.scan().row(), returned[*index])),
                Taken::No | Taken::Busy => {}
                Taken::Changed if keeps_snapshot() => return Err(Error::changed_since_snapshot()),
                // A new snapshot shows its new state.
                Taken::Changed => break,
            }
            left = later;
        }
        walk.end();
        view.end();
    }
    index.close();
    leases.close();
    if !ended.is_empty() {
        add_runs(spi, &ended, now);
    }
    Ok(ended.into_iter().map(|(lease, _)| lease).collect())
}

/// Returns the inputs of completed jobs; for a damaged input, a placeholder with its error.
fn readable_inputs(ended: &[(Row, Returned)]) -> Vec<Option<pg_sys::Datum>> {
    let inputs: Vec<pg_sys::Datum> = ended
        .iter()
        .filter_map(|(lease, _)| lease.value(Leased::Input))
        .collect();
    if let Ok(all) = toast::all_fetched(&inputs) {
        return all.into_iter().map(Some).collect();
    }
    let each = inputs
        .chunks(1)
        .map(|input| match toast::all_fetched(input) {
            Ok(input) => Some(input[0]),
            Err(error) if error.is_unreadable() => unreadable_job::placeholder(&error),
            Err(error) => error.raise(),
        });
    each.collect()
}

fn add_runs(spi: &Spi, ended: &[(Row, Returned)], now: Timestamp) {
    let job_ids: Vec<i64> = ended
        .iter()
        .map(|(lease, _)| lease.number(Leased::JobId))
        .collect();
    let steps = job_steps::kept(spi, &job_ids);
    let parent = Table::open(Run::TABLE, Run::ALL);
    let partition = parent.partition_for(now.0);
    let completed = arg(Outcome::Completed.state());
    let mut runs = Inserter::begin(partition.as_ref().unwrap_or(&parent), ended.len());
    for ((lease, returned), input) in ended.iter().zip(readable_inputs(ended)) {
        let mut run = runs.row();
        for (to, from) in SAME {
            run.set(to, lease.value(from));
        }
        run.set(Run::Input, input);
        run.set(Run::FinishedAt, arg(now));
        run.set(Run::Final, arg(true));
        run.set(Run::State, completed);
        run.set(Run::Output, returned.output);
        run.set(Run::Detail, returned.detail);
        let steps = steps.get(&lease.number(Leased::JobId));
        run.set(Run::Steps, steps.copied());
    }
    runs.end();
    if let Some(partition) = partition {
        partition.close();
    }
    parent.close();
}
