//! Next runs that a clock has decided which was ahead of now, left behind when it was set right.
//!
//! Enters: states whose next run is to come. Leaves: those that were decided later than now
//! computed anew from the clock of now, and a word in the log. Holds: `decided_at` explains a time,
//! not what it is: a next run that somebody sets by hand stays, however far ahead. What is less
//! than [`TOLERANCE_MICROS`] further ahead than its schedule says comes by itself.
//!
//! A sweep looks at the next [`LOOK_AT_MOST`] manifests, and at all of them when this backend sees
//! the clock go back.

use crate::manifest::zone_update;
use crate::manifest_state::{Move, move_next_runs};
use crate::server::clock::Timestamp;
use crate::server::random::random;
use crate::server::spi::{Spi, SpiRow, arg, statement};
use crate::timing;
use crate::timing::{Every, Kind, Plan, Timing};
use std::sync::atomic::{AtomicI64, Ordering};

/// Manifests that one sweep looks at.
const LOOK_AT_MOST: i64 = 1000;
/// One hour, in microseconds: so far the clock may be wrong without harm.
pub(crate) const TOLERANCE_MICROS: i64 = 60 * 60 * 1_000_000;

/// Where the last sweep of this backend stopped.
static REACHED: AtomicI64 = AtomicI64::new(i64::MIN);

statement!(
    MANIFEST_AHEAD,
    "manifest/ahead.sql",
    TIMESTAMPTZOID,
    INT8OID,
    INT8OID
);
statement!(
    MANIFEST_PARKED_AHEAD,
    "manifest/parked_ahead.sql",
    TIMESTAMPTZOID,
    TIMESTAMPTZOID
);

/// Puts right what lies too far ahead; `everything` looks at all manifests. Returns how many were
/// moved.
pub(crate) fn sweep(spi: &Spi, now: Timestamp, everything: bool) -> usize {
    let latest = now.plus(TOLERANCE_MICROS);
    spi.execute(&MANIFEST_PARKED_AHEAD, &[arg(latest), arg(now)]);
    let mut moved = 0;
    let mut reached = if everything {
        i64::MIN
    } else {
        REACHED.load(Ordering::Relaxed)
    };
    loop {
        let rows = spi.query(
            &MANIFEST_AHEAD,
            &[arg(now), arg(reached), arg(LOOK_AT_MOST)],
        );
        let moves: Vec<Move> = rows.iter().filter_map(|row| put_right(&row, now)).collect();
        moved += move_next_runs(spi, &moves, now);
        let is_last = (rows.len() as i64) < LOOK_AT_MOST;
        reached = match rows.len() {
            count if !is_last => rows.row(count - 1).must(1),
            _ => i64::MIN,
        };
        if is_last || !everything {
            break;
        }
    }
    REACHED.store(reached, Ordering::Relaxed);
    if moved > 0 {
        pgrx::warning!(
            "trax: the next runs of {moved} manifests lay further ahead than their schedules say and were computed anew; the clock of this server may have been wrong"
        );
    }
    moved
}

/// None when it is right, or says nothing because it cannot be evaluated.
fn put_right(row: &SpiRow, now: Timestamp) -> Option<Move> {
    let was: Timestamp = row.must(2);
    let is_decided_ahead = row
        .get::<Timestamp>(13)
        .is_some_and(|decided| decided > now.plus(TOLERANCE_MICROS));
    if !is_decided_ahead || was <= now.plus(TOLERANCE_MICROS) {
        return None;
    }
    // One that rests after a failure is tried again, one whose parents have succeeded is due.
    if row.must(14) {
        return Some(Move {
            manifest_id: row.must(1),
            was,
            run_at: now,
            occurrence: row.must::<Timestamp>(3).min(now),
        });
    }
    let timing = Timing {
        cron: row.get(6),
        every: row.get(7),
        run_at: None,
        depends: false,
        timezone: row.must(8),
        starts_at: row.get(9),
        ends_at: row.get(10),
        variance: row.get(11),
        exclusions: None,
    };
    if timing.cron.is_none() && timing.every.is_none() {
        return None;
    }
    let timing = Timing {
        exclusions: timing::stored_exclusions(row.datum(12)),
        ..timing
    };
    let plan = timing.plan().ok()?;
    if plan.starts_at().is_some_and(|start| !start.is_finite()) {
        return None;
    }
    let occurrence = match plan.kind {
        Kind::Cron(_) => next_of_cron(&plan, row.get(4), now)
            .filter(|next| next.plus(TOLERANCE_MICROS) < row.must(3)),
        Kind::Every(every) => next_of_every(&plan, every, row.get(5), now)
            .filter(|_| latest_of_every(&plan, every, now).plus(TOLERANCE_MICROS) < was),
        Kind::At(_) | Kind::Depends | Kind::Never => None,
    }?;
    Some(Move {
        manifest_id: row.must(1),
        was,
        run_at: plan.vary(occurrence, random()),
        occurrence,
    })
}

/// The occurrence after now and after the last one that was handled, if that lies in no wrong
/// future. One so near to that as an update of the zone data moves them may be the same: then the
/// one after it.
fn next_of_cron(plan: &Plan, last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let handled = last.filter(|&last| last <= now.plus(TOLERANCE_MICROS));
    let from = handled.map_or(now, |last| last.max(now));
    let from = plan
        .starts_at()
        .map_or(from, |start| start.plus(-1).max(from));
    let next = plan.after(from)?.at;
    let may_be_it =
        handled.is_some_and(|last| next <= last.plus(zone_update::FARTHEST_MICROS) && from == now);
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

/// No success until now puts the next run later than this.
fn latest_of_every(plan: &Plan, every: Every, now: Timestamp) -> Timestamp {
    let latest = every.after(now);
    let latest = plan.starts_at().map_or(latest, |start| start.max(latest));
    plan.vary(plan.put_off(latest).at, 1.0)
}
