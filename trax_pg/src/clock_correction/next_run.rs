//! Next runs that were decided while the server's clock was ahead, and are too late since it was
//! corrected.
//!
//! Enters: states with a future next run. Leaves: those that were decided later than now, computed
//! again from the current clock, and logged. Holds: a next run is corrected because of
//! `decided_at`, not because of its time: a next run set by hand stays, however far ahead. A next
//! run that is less than [`TOLERANCE_MICROS`] later than its schedule's is left alone.
//!
//! A sweep checks the next [`LOOK_AT_MOST`] manifests, and all of them when this backend sees the
//! clock go back.

use super::log;
use crate::manifest::zone_update;
use crate::manifest_state::{Move, move_next_runs};
use crate::server::clock::{TOLERANCE_MICROS, Timestamp};
use crate::server::random::random;
use crate::server::spi::{Spi, arg, row, statement};
use crate::timing;
use crate::timing::{Every, Kind, Plan, Timing};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicI64, Ordering};

/// The most manifests that one sweep checks.
const LOOK_AT_MOST: i64 = 1000;

/// Where the last sweep of this backend stopped.
static REACHED: AtomicI64 = AtomicI64::new(i64::MIN);

row! {
    /// A manifest with a future next run, and the columns that determine it.
    struct Ahead {
        manifest_id: i64,
        next_run_at: Timestamp,
        /// The occurrence of the next run.
        occurrence: Timestamp,
        /// The last occurrence that was queued or left out.
        last_occurrence: Option<Timestamp>,
        /// Its definition was changed after that: it may be an occurrence of another schedule.
        is_changed_since: bool,
        last_success_at: Option<Timestamp>,
        cron: Option<String>,
        every: Option<Interval>,
        timezone: String,
        starts_at: Option<Timestamp>,
        ends_at: Option<Timestamp>,
        variance: Option<Interval>,
        exclusions: Option<pg_sys::Datum>,
        decided_at: Option<Timestamp>,
        is_due_at_once: bool,
    }
}
statement!(
    NextRunsAhead, "clock_correction/next_runs.sql",
    { now: TIMESTAMPTZOID, after: INT8OID, at_most: INT8OID } -> Ahead
);
statement!(
    ParkedAhead, "clock_correction/parked.sql",
    { latest: TIMESTAMPTZOID, now: TIMESTAMPTZOID }
);

/// Corrects next runs that lie too far ahead; `everything` checks all manifests.
pub(super) fn correct(spi: &Spi, now: Timestamp, everything: bool) {
    let latest = now.plus(TOLERANCE_MICROS);
    spi.execute(ParkedAhead {
        latest: arg(latest),
        now: arg(now),
    });
    let mut moved = 0;
    let mut reached = if everything {
        i64::MIN
    } else {
        REACHED.load(Ordering::Relaxed)
    };
    loop {
        let rows = spi.query(NextRunsAhead {
            now: arg(now),
            after: arg(reached),
            at_most: arg(LOOK_AT_MOST),
        });
        let last = rows.iter().last().map(|row| row.manifest_id);
        let moves: Vec<Move> = rows
            .iter()
            .filter_map(|row| corrected_run(row, now))
            .collect();
        moved += move_next_runs(spi, &moves, now);
        let is_last = (rows.len() as i64) < LOOK_AT_MOST;
        reached = last.filter(|_| !is_last).unwrap_or(i64::MIN);
        if is_last || !everything {
            break;
        }
    }
    REACHED.store(reached, Ordering::Relaxed);
    log(
        moved,
        "manifests had next runs later than their schedules allow, which were recomputed",
    );
}

/// Returns the corrected next run; `None` when it is right, or cannot be evaluated.
fn corrected_run(row: Ahead, now: Timestamp) -> Option<Move> {
    let was = row.next_run_at;
    let is_decided_ahead = row
        .decided_at
        .is_some_and(|decided| decided > now.plus(TOLERANCE_MICROS));
    if !is_decided_ahead || was <= now.plus(TOLERANCE_MICROS) {
        return None;
    }
    // A manifest that is put off after a failure is tried again; one whose parents have succeeded
    // is due.
    if row.is_due_at_once {
        return Some(Move {
            manifest_id: row.manifest_id,
            was,
            run_at: now,
            occurrence: row.occurrence.min(now),
        });
    }
    let timing = Timing {
        cron: row.cron,
        every: row.every,
        run_at: None,
        depends: false,
        timezone: row.timezone,
        starts_at: row.starts_at,
        ends_at: row.ends_at,
        variance: row.variance,
        exclusions: None,
    };
    if timing.cron.is_none() && timing.every.is_none() {
        return None;
    }
    let timing = Timing {
        exclusions: timing::stored_exclusions(row.exclusions),
        ..timing
    };
    let plan = timing.plan().ok()?;
    if plan.starts_at().is_some_and(|start| !start.is_finite()) {
        return None;
    }
    let occurrence = match plan.kind {
        Kind::Cron(_) => next_of_cron(&plan, row.last_occurrence, row.is_changed_since, now)
            .filter(|next| next.plus(TOLERANCE_MICROS) < row.occurrence),
        Kind::Every(every) => next_of_every(&plan, every, row.last_success_at, now)
            .filter(|_| latest_of_every(&plan, every, now).plus(TOLERANCE_MICROS) < was),
        Kind::At(_) | Kind::Depends | Kind::Never => None,
    }?;
    Some(Move {
        manifest_id: row.manifest_id,
        was,
        run_at: plan.vary(occurrence, random()),
        occurrence,
    })
}

/// Returns the occurrence after now and after the last one that was handled, if that does not lie
/// in a wrong future. If the current zone data has none at that time, an update has moved it, and
/// an occurrence as near as updates move them may be the same: then returns the one after it.
fn next_of_cron(
    plan: &Plan,
    last: Option<Timestamp>,
    is_changed_since: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let handled = last.filter(|&last| last <= now.plus(TOLERANCE_MICROS));
    let from = handled.map_or(now, |last| last.max(now));
    let from = plan
        .starts_at()
        .map_or(from, |start| start.plus(-1).max(from));
    let next = plan.after(from)?.at;
    let may_be_it = handled.is_some_and(|last| {
        !is_changed_since
            && next <= last.plus(zone_update::FARTHEST_MICROS)
            && plan.latest(last, last).is_none()
    });
    if may_be_it {
        plan.after(next).map(|later| later.at)
    } else {
        Some(next)
    }
}

fn next_of_every(
    plan: &Plan,
    every: Every,
    last_success: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let success = last_success.filter(|&last| last <= now).unwrap_or(now);
    let due = every.after(success).max(now);
    let due = plan.starts_at().map_or(due, |start| start.max(due));
    Some(plan.put_off(due).at).filter(|&at| !plan.is_over(at))
}

/// Returns the latest next run that any success until now can lead to.
fn latest_of_every(plan: &Plan, every: Every, now: Timestamp) -> Timestamp {
    let latest = every.after(now);
    let latest = plan.starts_at().map_or(latest, |start| start.max(latest));
    plan.vary(plan.put_off(latest).at, 1.0)
}
