//! Due manifests become work-queue entries.
//!
//! Enters: manifests whose `next_run_at` has come. Leaves: a scheduled entry in the work queue, or the manifest
//! parked on what keeps it from being queued; in both cases its next time.
//! Holds: an occurrence becomes one entry at most; a manifest that cannot be evaluated does not stop the others.

use crate::clock::Timestamp;
use crate::error::Result;
use crate::manifest::{Timing, next_occurrence, parse_cron};
use crate::manifest_state::{NextRun, ParkedOn};
use crate::server_zone::ServerZone;
use crate::spi::{Spi, SpiRow, arg, array_arg, statement};
use crate::{group, setting, work_queue};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use std::collections::HashMap;

/// How long a manifest rests whose evaluation failed.
const REST_MICROS: i64 = 60 * 1_000_000;

statement!(DUE_LOCK, "due_lock.sql", TIMESTAMPTZOID, INT8OID);
statement!(DUE_JUDGE, "due_judge.sql", INT8ARRAYOID);
statement!(
    DUE_QUEUE,
    "due_queue.sql",
    INT8ARRAYOID,
    TIMESTAMPTZARRAYOID,
    TIMESTAMPTZOID,
    INT8ARRAYOID
);
statement!(
    DUE_SETTLE,
    "due_settle.sql",
    INT8ARRAYOID,
    TIMESTAMPTZARRAYOID,
    TEXTARRAYOID,
    TIMESTAMPTZARRAYOID,
    TIMESTAMPTZARRAYOID,
    TEXTARRAYOID,
    TIMESTAMPTZOID
);

/// Queues due manifests; gives how many were queued, and whether more may be due.
pub(crate) fn queue_due(spi: &Spi, now: Timestamp) -> (usize, bool) {
    let at_most = setting::max_entries_per_cycle().map(|limit| limit as i64);
    let rows = spi.query(&DUE_LOCK, &[arg(now), at_most.and_then(arg)]);
    let locked: Vec<i64> = rows.iter().map(|row| row.must(1)).collect();
    if locked.is_empty() {
        return (0, false);
    }
    let rows = spi.query(&DUE_JUDGE, &[arg(locked)]);
    let due: Vec<Due> = rows.iter().map(|row| Due::read(&row)).collect();
    let mut decisions: Vec<Decision> = due
        .iter()
        .filter(|due| due.is_settled(spi))
        .map(|due| due.decide(now))
        .collect();
    if decisions.is_empty() {
        return (0, false);
    }
    decisions.sort_by_key(|decision| decision.manifest_id);
    let queued = queue(spi, &due, &decisions, now);
    settle(spi, &decisions, now);
    (
        queued,
        at_most.is_some_and(|limit| decisions.len() as i64 >= limit),
    )
}

/// A manifest whose time has come.
struct Due {
    manifest_id: i64,
    due_at: Timestamp,
    /// It was parked since `due_at`: occurrences after it are made up for by this one.
    was_parked: bool,
    blocked_on: Option<String>,
    misfire_threshold: Interval,
    timing: Timing,
    group: String,
    task: String,
}

/// What becomes of it.
#[derive(Debug)]
struct Decision {
    manifest_id: i64,
    queue_for: Option<Timestamp>,
    next: NextRun,
    parked_due_at: Option<Timestamp>,
    failure: Option<String>,
}

impl Due {
    fn read(row: &SpiRow) -> Self {
        Self {
            manifest_id: row.must(1),
            due_at: row.must(2),
            was_parked: row.must(3),
            timing: Timing {
                cron: row.get(4),
                every: row.get(5),
                run_at: row.get(6),
                timezone: row.must(7),
                starts_at: None,
                ends_at: row.get(8),
            },
            blocked_on: row.get(9),
            misfire_threshold: row.must(10),
            group: row.must(11),
            task: row.must(12),
        }
    }

    /// Whether it can be decided now. A group that is just being configured may be on again before we commit, and
    /// would not wake what we park: its manifests wait for the next cycle.
    fn is_settled(&self, spi: &Spi) -> bool {
        self.blocked_on.as_deref() != Some(ParkedOn::GroupDisabled.as_str())
            || group::stays_disabled(spi, &self.group)
    }

    fn decide(&self, now: Timestamp) -> Decision {
        let decision = |queue_for, next, parked_due_at| Decision {
            manifest_id: self.manifest_id,
            queue_for,
            next,
            parked_due_at,
            failure: None,
        };
        if let Some(reason) = self.blocked_on.as_deref().and_then(ParkedOn::parse) {
            return decision(None, NextRun::Parked(reason), Some(self.due_at));
        }
        if self.timing.bounded(Some(self.due_at)) == NextRun::Parked(ParkedOn::Ended) {
            return decision(None, NextRun::Parked(ParkedOn::Ended), None);
        }
        match self.following(now) {
            Ok(next) => decision(Some(self.due_at), next, None),
            Err(error) => Decision {
                failure: Some(error.message().to_string()),
                ..decision(None, NextRun::At(now.plus(REST_MICROS)), None)
            },
        }
    }

    /// The occurrence after the one that is queued now.
    fn following(&self, now: Timestamp) -> Result<NextRun> {
        let Some(text) = &self.timing.cron else {
            return Ok(NextRun::Parked(ParkedOn::Outcome));
        };
        let threshold = crate::clock::interval_micros(&self.misfire_threshold);
        let missed = self.was_parked || self.due_at.plus(threshold) < now;
        let after = if missed { now } else { self.due_at };
        let zone = ServerZone::named(&self.timing.timezone)?;
        Ok(self
            .timing
            .bounded(next_occurrence(&parse_cron(text)?, after, &zone)))
    }
}

fn queue(spi: &Spi, due: &[Due], decisions: &[Decision], now: Timestamp) -> usize {
    let by_id: HashMap<i64, &Due> = due.iter().map(|due| (due.manifest_id, due)).collect();
    let mut lanes: HashMap<(&str, &str), i64> = HashMap::new();
    let (mut ids, mut occurrences, mut lane_ids) = (Vec::new(), Vec::new(), Vec::new());
    for decision in decisions {
        if let Some(occurrence) = decision.queue_for {
            let due = by_id[&decision.manifest_id];
            let lane = lanes
                .entry((&due.group, &due.task))
                .or_insert_with(|| work_queue::ensure_lane(spi, &due.group, &due.task));
            ids.push(decision.manifest_id);
            occurrences.push(arg(occurrence));
            lane_ids.push(*lane);
        }
    }
    if ids.is_empty() {
        return 0;
    }
    let occurrences = array_arg(pg_sys::TIMESTAMPTZOID, &occurrences);
    spi.execute(
        &DUE_QUEUE,
        &[arg(ids), occurrences, arg(now), arg(lane_ids)],
    )
}

fn settle(spi: &Spi, decisions: &[Decision], now: Timestamp) {
    let column = |value: fn(&Decision) -> Option<pg_sys::Datum>, element| {
        array_arg(element, &decisions.iter().map(value).collect::<Vec<_>>())
    };
    let next_run_at = |decision: &Decision| match decision.next {
        NextRun::At(at) => arg(at),
        NextRun::Never | NextRun::Parked(_) => None,
    };
    let parked_on = |decision: &Decision| match decision.next {
        NextRun::Parked(reason) => arg(reason.as_str()),
        NextRun::At(_) | NextRun::Never => None,
    };
    spi.execute(
        &DUE_SETTLE,
        &[
            column(|decision| arg(decision.manifest_id), pg_sys::INT8OID),
            column(next_run_at, pg_sys::TIMESTAMPTZOID),
            column(parked_on, pg_sys::TEXTOID),
            column(
                |decision| decision.parked_due_at.and_then(arg),
                pg_sys::TIMESTAMPTZOID,
            ),
            column(
                |decision| decision.queue_for.and_then(arg),
                pg_sys::TIMESTAMPTZOID,
            ),
            column(
                |decision| decision.failure.as_deref().and_then(arg),
                pg_sys::TEXTOID,
            ),
            arg(now),
        ],
    );
}
