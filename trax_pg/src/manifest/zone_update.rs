//! The server's zone data: detects when it is updated, and computes next runs again.
//!
//! Words: the *fingerprint* of the data is the time of the last change of its directory. A backend
//! keeps the zones it has loaded until it ends; it is *stale* when the data has changed since.
//!
//! Enters: an update of the data on disk, or `trax.adopt()`, after which the earlier data is
//! unknown. Leaves: the scheduler connects again, and the next cycle of a backend that has read the
//! new data corrects the next run of every cron manifest in a zone. Holds: a planned occurrence,
//! future or due but not queued yet, is moved, not replaced, to the nearest of the new occurrences,
//! also one that has just passed: a shift drops no day and runs none twice. So the first cycle of a
//! backend corrects before it queues.

use crate::error::Result;
use crate::manifest_state::{Move, move_next_runs};
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, row, statement};
use crate::timing;
use crate::timing::zone;
use crate::timing::{Plan, Timing};
use pgrx::pg_sys;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

row! {
    /// A cron manifest whose next run is to come, with the columns that determine it.
    struct Planned {
        manifest_id: i64,
        next_scheduled_for: Timestamp,
        cron: Option<String>,
        timezone: String,
        starts_at: Option<Timestamp>,
        ends_at: Option<Timestamp>,
        exclusions: Option<pg_sys::Datum>,
        next_run_at: Timestamp,
    }
}
statement!(ZoneDataKnown, "manifest/zone_data_known.sql" -> Option<String>);
statement!(ZoneDataStore, "manifest/zone_data_store.sql", { fingerprint: TEXTOID });
statement!(ZoneSelect, "manifest/zone_select.sql", { now: TIMESTAMPTZOID } -> Planned);

/// The farthest that an update moves an occurrence, in microseconds: beyond it, the nearest
/// occurrence would be a different one.
pub(crate) const FARTHEST_MICROS: i64 = 3 * 60 * 60 * 1_000_000;

/// Whether this backend has found that nothing is left to correct.
static CORRECTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Until when this backend pauses after a correction.
    static PAUSED_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns whether nothing is left to do before a cycle queues due jobs.
pub(crate) fn is_corrected() -> bool {
    CORRECTED.load(Ordering::Relaxed)
        || PAUSED_UNTIL
            .get()
            .is_some_and(|until| Instant::now() < until)
}

/// Corrects next runs before a cycle queues due jobs, in each backend until a correction has
/// committed: a backend keeps its data. While another transaction holds such a manifest, the
/// backend pauses for a hundred times as long as the correction took.
pub(crate) fn correct_before_queueing(spi: &Spi, now: Timestamp) -> Result<()> {
    let began = Instant::now();
    zone::remember_fingerprint();
    let current = zone::fingerprint();
    if current.is_none() || zone::is_stale() || known(spi) == current {
        CORRECTED.store(true, Ordering::Relaxed);
        return Ok(());
    }
    catch_up(spi, now)?;
    PAUSED_UNTIL.set(Some(Instant::now() + began.elapsed() * 100));
    Ok(())
}

/// Recomputes next runs that were computed with other data than the current; returns how many were
/// corrected. A stale backend leaves this to one that is not stale.
pub(crate) fn catch_up(spi: &Spi, now: Timestamp) -> Result<usize> {
    zone::remember_fingerprint();
    let Some(current) = zone::fingerprint() else {
        return Ok(0);
    };
    if zone::is_stale() {
        return Ok(0);
    }
    if known(spi).as_ref() == Some(&current) {
        return Ok(0);
    }
    let (corrected, all) = correct(spi, now);
    if all {
        spi.execute(ZoneDataStore {
            fingerprint: arg(current),
        });
    }
    Ok(corrected)
}

/// Returns the fingerprint of the data with which next runs were computed.
fn known(spi: &Spi) -> Option<String> {
    spi.query(ZoneDataKnown).one()
}

/// Returns how many were corrected, and whether that was all: none was locked by another
/// transaction.
fn correct(spi: &Spi, now: Timestamp) -> (usize, bool) {
    let rows = spi.query(ZoneSelect { now: arg(now) });
    let mut moves = Vec::new();
    for row in rows.iter() {
        let (manifest_id, planned, run_at) =
            (row.manifest_id, row.next_scheduled_for, row.next_run_at);
        // A schedule that cannot be evaluated reports its error when it is due.
        let Ok(plan) = timing(row).plan() else {
            continue;
        };
        if !planned.is_finite() {
            continue;
        }
        let moved = nearest(&plan, planned).or_else(|| {
            // A due run keeps its occurrence, and the misfire policy decides about it.
            let next = plan.after(now).filter(|_| planned > now);
            next.map(|occurrence| occurrence.at)
        });
        if let Some(occurrence) = moved.filter(|&at| at != planned) {
            let delay = run_at.0.saturating_sub(planned.0);
            moves.push(Move {
                manifest_id,
                was: run_at,
                // An occurrence that has just passed is due now, and no more overdue than it was.
                run_at: occurrence.plus(delay).max(run_at.min(now)),
                occurrence,
            });
        }
    }
    let corrected = move_next_runs(spi, &moves, now);
    (corrected, corrected == moves.len())
}

/// Returns the current data's occurrence that matches the planned one, if it is near.
fn nearest(plan: &Plan, planned: Timestamp) -> Option<Timestamp> {
    let before = plan.latest(planned.plus(-FARTHEST_MICROS), planned);
    let after = plan.after(planned).map(|occurrence| occurrence.at);
    let distance = |at: Timestamp| at.0.saturating_sub(planned.0).saturating_abs();
    before
        .into_iter()
        .chain(after)
        .filter(|&at| distance(at) <= FARTHEST_MICROS)
        .min_by_key(|&at| distance(at))
}

fn timing(row: Planned) -> Timing {
    Timing {
        cron: row.cron,
        every: None,
        run_at: None,
        depends: false,
        timezone: row.timezone,
        starts_at: row.starts_at,
        ends_at: row.ends_at,
        variance: None,
        exclusions: timing::stored_exclusions(row.exclusions),
    }
}
