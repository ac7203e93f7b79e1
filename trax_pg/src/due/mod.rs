//! Turns due manifests into work-queue entries.
//!
//! Enters: manifests whose `next_run_at` has come. Leaves: a scheduled entry in the work queue, or
//! the manifest parked on the reason that keeps it from being queued; in both cases its next time.
//! Holds: an occurrence becomes at most one entry; each group gets its share of a cycle. A manifest
//! that cannot be evaluated or queued does not stop the others, and is disabled after repeated
//! failures of its own. Other failures only delay it: of the server (no disk space, a lock timeout,
//! a missing zone file), of additions to the queue (a trigger, a rule, row security), and any that
//! affect all manifests.

mod decide;
mod share;

use crate::changes::Claimable;
use crate::columns::{HIGHEST_PRIORITY, Waiting};
use crate::due::share::DueGroup;
use crate::error::{Error, Result};
use crate::limit::group;
use crate::manifest_state::dependency;
use crate::manifest_state::{NextRun, ParkedOn};
use crate::server::clock::Timestamp;
use crate::server::random::random;
use crate::server::spi;
use crate::server::spi::{Spi, arg, array_arg, statement};
use crate::server::table::{Write, obstacle_of};
use crate::{changes, lane, setting, wake};
use decide::{Decision, Due, Judged, Plans};
use pgrx::pg_sys;
use std::collections::HashSet;

/// The most due manifests of each group that a cycle with a backlog counts.
const LOOK_AT_MOST: i64 = 100_000;
/// A manifest is disabled after this many failures in a row of its own, over at least this many
/// microseconds.
const FAILURES_AT_MOST: i32 = 5;
const FAILING_AT_MOST_MICROS: i64 = 10 * 60 * 1_000_000;
/// After this many entries in a row with failures that are not their own, the remaining entries of
/// the cycle are not tried.
const TROUBLES_AT_MOST: usize = 8;

statement!(ManifestForgetStates, "due/manifest_forget_states.sql", { manifest_ids: INT8ARRAYOID });
statement!(DueCount, "due/count.sql", { now: TIMESTAMPTZOID, at_most: INT8OID } -> i64);
statement!(DueGroups, "due/groups.sql", { now: TIMESTAMPTZOID, at_most: INT8OID } -> DueGroup);
statement!(DueLock, "due/lock.sql", { now: TIMESTAMPTZOID, at_most: INT8OID } -> i64);
statement!(
    DueLockShares, "due/lock_shares.sql",
    { now: TIMESTAMPTZOID, groups: TEXTARRAYOID, shares: INT8ARRAYOID } -> i64
);
statement!(DueJudge, "due/judge.sql", { manifest_ids: INT8ARRAYOID } -> Judged);
statement!(
    DueQueue, "due/queue.sql",
    {
        manifest_ids: INT8ARRAYOID,
        occurrences: TIMESTAMPTZARRAYOID,
        lane_ids: INT8ARRAYOID,
        now: TIMESTAMPTZOID,
        dependent_boost: INT4OID,
        highest_priority: INT4OID,
    } -> Claimable
);
statement!(
    DueSettle, "due/store.sql",
    {
        manifest_ids: INT8ARRAYOID,
        next_run_at: TIMESTAMPTZARRAYOID,
        next_scheduled_for: TIMESTAMPTZARRAYOID,
        parked_on: TEXTARRAYOID,
        parked_due_at: TIMESTAMPTZARRAYOID,
        queued_for: TIMESTAMPTZARRAYOID,
        skipped_for: TIMESTAMPTZARRAYOID,
        skipped: INT4ARRAYOID,
        made_up: INT4ARRAYOID,
        failure: TEXTARRAYOID,
        failures: INT4ARRAYOID,
        now: TIMESTAMPTZOID,
    }
);
statement!(DueQueuedSince, "due/queued_since.sql", { since: TIMESTAMPTZOID } -> bool);
statement!(
    ManifestDisableBroken, "due/manifest_disable_broken.sql",
    { manifest_id: INT8OID, reason: TEXTOID, now: TIMESTAMPTZOID }
);

/// Queues due manifests; returns how many were queued, and whether more are due.
pub(crate) fn queue_due(spi: &Spi, now: Timestamp) -> (usize, bool) {
    let allowed = setting::max_entries_per_cycle().map(|limit| limit as i64);
    let mut locked: Vec<i64> = match (count(spi, allowed.unwrap_or(0) + 1, now), allowed) {
        (0, _) => return (0, false),
        (due, Some(allowed)) if due > allowed => lock_shares(spi, allowed, now),
        _ => {
            let lock = DueLock {
                now: arg(now),
                at_most: allowed.and_then(arg),
            };
            spi.query(lock).iter().collect()
        }
    };
    // States are written in ascending order, as everywhere.
    locked.sort_unstable();
    let rows = spi.query(DueJudge {
        manifest_ids: arg(locked.clone()),
    });
    let mut due: Vec<Due> = rows.iter().map(Due::of).collect();
    forget_orphans(spi, &locked, &due);
    let mut kept = group::LockedGroups::default();
    due.retain(|due| is_decidable(due, &mut kept));
    let mut plans = Plans::default();
    let mut decisions: Vec<Decision> = due.iter().map(|due| due.decide(&mut plans, now)).collect();
    let queued = queue(spi, &due, &mut decisions, now);
    consume(spi, &due, &decisions);
    disable_broken(spi, &due, &mut decisions, queued, now);
    store_decisions(spi, &decisions, now);
    (
        queued,
        allowed.is_some_and(|allowed| decisions.len() as i64 >= allowed),
    )
}

/// Deletes states whose manifest was deleted by hand: they would take the share of others forever.
fn forget_orphans(spi: &Spi, locked: &[i64], due: &[Due]) {
    if locked.len() == due.len() {
        return;
    }
    let known: HashSet<i64> = due.iter().map(|due| due.manifest_id).collect();
    let orphans: Vec<i64> = locked
        .iter()
        .copied()
        .filter(|id| !known.contains(id))
        .collect();
    spi.execute(ManifestForgetStates {
        manifest_ids: arg(orphans),
    });
}

/// Returns whether it can be decided now. A group that is being configured may be enabled again
/// before this commits, without waking manifests parked here: they wait for the next cycle.
fn is_decidable(due: &Due, kept: &mut group::LockedGroups) -> bool {
    due.blocked_on != Some(ParkedOn::GroupDisabled) || group::stays_disabled(kept, &due.group)
}

/// Returns how many manifests are due, up to a limit. A single index probe shows that none is.
fn count(spi: &Spi, up_to: i64, now: Timestamp) -> i64 {
    spi.query(DueCount {
        now: arg(now),
        at_most: arg(up_to),
    })
    .one()
}

/// Locks each group's share when more is due than one cycle queues. Costs a probe for each group
/// with a manifest, which is worth it only for a backlog.
fn lock_shares(spi: &Spi, allowed: i64, now: Timestamp) -> Vec<i64> {
    let rows = spi.query(DueGroups {
        now: arg(now),
        at_most: arg(allowed.min(LOOK_AT_MOST)),
    });
    let groups: Vec<DueGroup> = rows.iter().collect();
    let shares = share::shares(&groups, allowed);
    let names: Vec<String> = groups.into_iter().map(|group| group.name).collect();
    let lock = DueLockShares {
        now: arg(now),
        groups: arg(names),
        shares: arg(shares),
    };
    spi.query(lock).iter().collect()
}

/// Queues the decided entries; returns how many there are.
fn queue(spi: &Spi, due: &[Due], decisions: &mut [Decision], now: Timestamp) -> usize {
    let firing: Vec<usize> = (0..decisions.len())
        .filter(|&index| decisions[index].queue_for.is_some())
        .collect();
    if firing.is_empty() {
        return 0;
    }
    let entries: Vec<Entry> = firing
        .iter()
        .map(|&index| Entry {
            index,
            manifest_id: decisions[index].manifest_id,
            occurrence: decisions[index].queue_for.expect("chosen above"),
            lane_id: lane::of(
                &due[index].group,
                &due[index].task,
                due[index].run_as.as_deref(),
                None,
                None,
            ),
        })
        .collect();
    wake::mark(wake::WORK);
    queue_entries(spi, due, &entries, decisions, now)
}

/// Consumes the successes that satisfied a dependent: when it is queued, and when its overlap
/// policy drops it.
fn consume(spi: &Spi, due: &[Due], decisions: &[Decision]) {
    let used = due
        .iter()
        .zip(decisions)
        .filter(|(due, _)| due.depends)
        .filter(|(_, decision)| decision.queue_for.is_some() || decision.skipped.is_some())
        .map(|(due, _)| due.manifest_id)
        .collect();
    dependency::consume(spi, used);
}

struct Entry {
    index: usize,
    manifest_id: i64,
    occurrence: Timestamp,
    lane_id: i64,
}

/// Queues all entries in one statement; if that fails, each by itself, so that one bad row fails
/// alone. While all fail for other reasons, only a few are tried: different ones each time, so that
/// none hides the rest.
fn queue_entries(
    spi: &Spi,
    due: &[Due],
    entries: &[Entry],
    decisions: &mut [Decision],
    now: Timestamp,
) -> usize {
    let mut error = match insert(spi, entries, now) {
        Ok(queued) => return queued,
        Err(error) => error,
    };
    let has_obstacle = obstacle_of(Waiting::TABLE, Waiting::ALL, &[Write::Insert]).is_some();
    let is_own = |error: &Error| !has_obstacle && !error.is_of_the_server();
    let first = (random() * entries.len() as f64) as usize % entries.len();
    let (mut queued, mut troubles) = (0, 0);
    for entry in entries[first..].iter().chain(&entries[..first]) {
        if troubles < TROUBLES_AT_MOST && entries.len() > 1 {
            match insert(spi, std::slice::from_ref(entry), now) {
                Ok(count) => {
                    queued += count;
                    troubles = 0;
                    continue;
                }
                Err(its_own) => error = its_own,
            }
        }
        troubles = if is_own(&error) { 0 } else { troubles + 1 };
        let (due, decision) = (&due[entry.index], &mut decisions[entry.index]);
        decision.fail(due, &error, is_own(&error), now);
    }
    queued
}

fn insert(spi: &Spi, entries: &[Entry], now: Timestamp) -> Result<usize> {
    let ids: Vec<i64> = entries.iter().map(|entry| entry.manifest_id).collect();
    let occurrences: Vec<Option<pg_sys::Datum>> =
        entries.iter().map(|entry| arg(entry.occurrence)).collect();
    let lanes: Vec<i64> = entries.iter().map(|entry| entry.lane_id).collect();
    spi::isolated(|| {
        let queued = spi.query(DueQueue {
            manifest_ids: arg(ids),
            occurrences: array_arg(pg_sys::TIMESTAMPTZOID, &occurrences),
            lane_ids: arg(lanes),
            now: arg(now),
            dependent_boost: arg(setting::dependent_priority_boost()),
            highest_priority: arg(HIGHEST_PRIORITY),
        });
        Ok(changes::rows_claimable(&queued))
    })
}

/// Disables manifests that have failed often enough by themselves. A failure to queue one counts as
/// its own only if others were queued since it began.
fn disable_broken(
    spi: &Spi,
    due: &[Due],
    decisions: &mut [Decision],
    queued: usize,
    now: Timestamp,
) {
    for (due, decision) in due.iter().zip(decisions) {
        let Some(failure) = &decision.failure else {
            continue;
        };
        let is_enough = decision.failures >= FAILURES_AT_MOST
            && due.failing_micros(now) >= FAILING_AT_MOST_MICROS;
        if !failure.is_own || !is_enough {
            continue;
        }
        let since = due.failed_since().unwrap_or(now);
        if failure.is_certain || queued > 0 || is_any_queued_since(spi, since) {
            let reason = format!(
                "it could not be queued {} times in a row: {}",
                decision.failures, failure.message
            );
            spi.execute(ManifestDisableBroken {
                manifest_id: arg(due.manifest_id),
                reason: arg(reason.as_str()),
                now: arg(now),
            });
            pgrx::warning!("trax: manifest {} is disabled: {reason}", due.manifest_id);
            decision.next = NextRun::Parked(ParkedOn::Disabled);
        }
    }
}

/// Returns whether the cycle has queued any manifest since a time.
fn is_any_queued_since(spi: &Spi, time: Timestamp) -> bool {
    spi.query(DueQueuedSince { since: arg(time) }).one()
}

fn store_decisions(spi: &Spi, decisions: &[Decision], now: Timestamp) {
    let column = |value: fn(&Decision) -> Option<pg_sys::Datum>, element| {
        array_arg(element, &decisions.iter().map(value).collect::<Vec<_>>())
    };
    let times = pg_sys::TIMESTAMPTZOID;
    spi.execute(DueSettle {
        manifest_ids: column(|decision| arg(decision.manifest_id), pg_sys::INT8OID),
        next_run_at: column(|decision| decision.next.run_at().and_then(arg), times),
        next_scheduled_for: column(|decision| decision.next.occurrence().and_then(arg), times),
        parked_on: column(
            |decision| {
                decision
                    .next
                    .parked_on()
                    .map(ParkedOn::as_str)
                    .and_then(arg)
            },
            pg_sys::TEXTOID,
        ),
        parked_due_at: column(|decision| decision.parked_due_at.and_then(arg), times),
        queued_for: column(|decision| decision.queue_for.and_then(arg), times),
        skipped_for: column(
            |decision| decision.skipped.and_then(|(last, _)| arg(last)),
            times,
        ),
        skipped: column(
            |decision| arg(decision.skipped.map_or(0, |(_, count)| count)),
            pg_sys::INT4OID,
        ),
        made_up: column(|decision| arg(decision.made_up), pg_sys::INT4OID),
        failure: column(
            |decision| {
                let failure = decision.failure.as_ref()?;
                arg(failure.message.as_str())
            },
            pg_sys::TEXTOID,
        ),
        failures: column(|decision| arg(decision.failures), pg_sys::INT4OID),
        now: arg(now),
    });
}
