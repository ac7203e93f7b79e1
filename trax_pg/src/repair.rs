//! The repair: does again what an event should have done, in case it did not.
//!
//! Words: an *event* is the end of a job, of a lease, of a reason to park a manifest, a commit that
//! makes rows claimable. Each event does its work at once, and leaves to the next cycle the rows
//! that another transaction has locked (`memory/left.rs`). The repair is the fallback, for rows
//! that a person has deleted or written without triggers, and for work that was left without shared
//! memory, or by a cycle that failed.
//!
//! Enters: one pass a minute (`cleanup`). Leaves: starts of sections that no row precedes, jobs in
//! their lanes that have room, parked manifests that are due again, a dead letter for each job that
//! failed for good. Holds: a part reads a bounded number of rows in a pass, and the next pass
//! continues behind them; a part waits for no lock, except of a dead letter that another
//! transaction is writing; a part that fails stops no other.
//!
//! | part | what it reads in one pass, at most |
//! |---|---|
//! | `claim` | 2,000 sections of the index, and 2,000 entries of shared memory |
//! | `limit` | the first job of 5,000 lanes behind keys, and of 5,000 behind manifests |
//! | `manifest_state` | 1,000 manifests that have been parked for 10 minutes |
//! | `job_needs` | 1,000 jobs that wait for others, and 1,000 needs |
//! | `job_steps` | 1,000 signals |
//! | `dead_letter` | the jobs that failed for good since the last pass |

use crate::memory::left::Left;
use crate::server::clock::Timestamp;
use crate::server::spi::Spi;
use crate::{claim, dead_letter, job_needs, job_steps, limit, manifest_state, step};
use std::cell::Cell;

/// Does the work that transactions have left to this cycle, and leaves again what is still locked.
pub(crate) fn left(spi: &Spi, left: &[(Left, i64)]) {
    limit::free_left(spi, left);
    let manifests = left.iter().filter_map(|&(left, _)| match left {
        Left::Overlap(manifest_id) => Some(manifest_id),
        _ => None,
    });
    claim::unpark(spi, manifests.collect());
}

/// Runs one pass; returns how many dead letters were missing.
pub(crate) fn run(spi: &Spi, now: Timestamp) -> usize {
    let missing = Cell::new(0);
    let parts: [&dyn Fn(); 6] = [
        &claim::repair,
        &|| missing.set(dead_letter::repair(spi, now)),
        &|| limit::repair(spi),
        &|| manifest_state::repair(spi, now),
        &|| job_needs::repair(spi),
        &|| job_steps::repair(spi),
    ];
    step::in_parts(spi, now, "repair", &parts);
    missing.get()
}
