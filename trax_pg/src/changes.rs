//! Changes: a transaction's report to shared memory when it ends, which saves claims useless reads.
//!
//! Enters: rows that became claimable or were written by hand, groups that were configured or whose
//! count of running jobs changed. Leaves: starts lowered (`memory/lane`) and gates opened, after
//! the commit and before any session is woken. Everything is checked when it is recorded, because
//! nothing may fail after the commit. Changes of a transaction that is rolled back are dropped,
//! apart from gates: the rollback of a claim makes room.

use crate::columns::HIGHEST_PRIORITY;
use crate::memory;
use crate::memory::CANCELS_AT_MOST;
use crate::memory::left::Left;
use crate::memory::{Bound, Section};
use crate::memory::{left, prepared, waiting};
use crate::server::spi::{Rows, row};
use crate::wake;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Beyond this many ended jobs in one transaction, all sessions that wait for any job are woken.
const ENDED_JOBS_KEPT: usize = 10_000;

#[derive(Default)]
struct PendingChanges {
    /// The first job that became claimable, by section.
    claimable: HashMap<Section, i64>,
    /// Gates of groups whose count of running jobs has changed, or their limit.
    gates: HashSet<Bound>,
    configured: bool,
    /// Lanes of rates that jobs have left.
    left_lanes: HashSet<i64>,
    /// Lanes of rates from which jobs have started: after a rollback these are first again.
    started_lanes: HashSet<i64>,
    /// Rates were changed, or opened.
    rates: bool,
    /// Rates were closed: a rollback opens them.
    closed_rates: bool,
    /// Rows have been taken out of the queue.
    taken: bool,
    /// The first job whose lease has ended: after a rollback it counts again.
    ended: Option<i64>,
    /// Jobs that have ended for good; cleared when there are too many to keep.
    ended_jobs: Vec<i64>,
    too_many_ended: bool,
    /// Jobs whose workers are asked to stop.
    cancel_requested: Vec<i64>,
    /// Work that is left to the next cycle, and how often it is to be done.
    left: HashMap<Left, i64>,
    /// Leases were granted outside the limit of the database.
    beside_limit: bool,
    /// A user's statement has written to the queue, to leases or to groups.
    manual: bool,
}

thread_local! {
    static PENDING: RefCell<PendingChanges> = RefCell::default();
}

fn record(what: u32, write: impl FnOnce(&mut PendingChanges)) {
    wake::mark(what);
    if memory::available() {
        PENDING.with_borrow_mut(write);
    }
}

/// Records that a row of a lane is claimable from the commit on. A priority that cannot have a
/// start (written by hand, without the constraint) counts as a change by hand. This is checked now,
/// because nothing may fail after the commit.
pub(crate) fn claimable(lane: i64, priority: i16, job_id: i64) {
    let is_known = (0..=HIGHEST_PRIORITY).contains(&i32::from(priority));
    record(wake::WORK, |pending| {
        if !is_known {
            pending.manual = true;
            return;
        }
        let section = Section { lane, priority };
        let first = pending.claimable.entry(section).or_insert(job_id);
        *first = job_id.min(*first);
    });
}

row! {
    /// A row of a lane that a statement has made claimable.
    pub(crate) struct Claimable {
        lane_id: i64,
        priority: i16,
        job_id: i64,
    }
}

/// Records that rows are claimable from the commit on. Returns how many.
pub(crate) fn rows_claimable(rows: &Rows<Claimable>) -> usize {
    for row in rows.iter() {
        claimable(row.lane_id, row.priority, row.job_id);
    }
    rows.len()
}

/// Records that jobs have left lanes of rates without a start: other jobs may be first there.
pub(crate) fn lanes_left(lanes: impl Iterator<Item = i64>) {
    let mut lanes = lanes.peekable();
    if lanes.peek().is_some() {
        record(wake::WORK, |pending| pending.left_lanes.extend(lanes));
    }
}

/// Records that a job of a lane has started under a rate.
pub(crate) fn started_under_rate(lane: i64) {
    record(0, |pending| {
        pending.started_lanes.insert(lane);
    });
}

/// Records that a rate was closed.
pub(crate) fn rate_closed() {
    record(0, |pending| pending.closed_rates = true);
}

/// Records that a group's number of running jobs, or its limit, has changed.
pub(crate) fn group_changed(group: &str) {
    let gate = Bound::full_until(group);
    record(0, |pending| {
        pending.gates.insert(gate);
    });
}

/// Records that a group was configured.
pub(crate) fn group_configured(group: &str) {
    record(wake::WORK, |pending| pending.configured = true);
    group_changed(group);
}

/// Records that rates may have room earlier than their gates say: all gates are opened.
pub(crate) fn rates_opened() {
    record(wake::WORK, |pending| pending.rates = true);
}

/// Returns whether this transaction has configured groups, which other sessions cannot see yet.
pub(crate) fn has_configured() -> bool {
    PENDING.with_borrow(|pending| pending.configured || pending.manual)
}

/// Returns whether this transaction has written to the queue, to leases or to groups by hand.
pub(crate) fn has_written_manually() -> bool {
    PENDING.with_borrow(|pending| pending.manual)
}

/// Returns the first job of each section that this transaction has made claimable, before other
/// sessions can see them.
pub(crate) fn own_claimable() -> HashMap<Section, i64> {
    PENDING.with_borrow(|pending| pending.claimable.clone())
}

/// Records that rows of the queue are taken: until its end, this transaction sees fewer rows than
/// other sessions may find again.
pub(crate) fn taken() {
    record(wake::CLAIMED, |pending| pending.taken = true);
}

pub(crate) fn has_taken() -> bool {
    PENDING.with_borrow(|pending| pending.taken)
}

/// Records that the lease of a job ends with this transaction.
pub(crate) fn lease_ended(job_id: i64) {
    record(0, |pending| {
        pending.ended = Some(pending.ended.map_or(job_id, |first| first.min(job_id)));
    });
}

/// Records jobs that end for good with this transaction: sessions that wait for one are woken.
pub(crate) fn jobs_ended(job_ids: impl Iterator<Item = i64>) {
    record(0, |pending| {
        if !pending.too_many_ended {
            pending.ended_jobs.extend(job_ids);
        }
        if pending.ended_jobs.len() > ENDED_JOBS_KEPT {
            pending.ended_jobs = Vec::new();
            pending.too_many_ended = true;
        }
    });
}

/// Records jobs whose workers are asked to stop.
pub(crate) fn cancel_requested(job_ids: impl Iterator<Item = i64>) {
    let mut job_ids = job_ids.peekable();
    if job_ids.peek().is_none() {
        return;
    }
    record(wake::CANCELLED, |pending| {
        let room = (CANCELS_AT_MOST + 1).saturating_sub(pending.cancel_requested.len());
        pending.cancel_requested.extend(job_ids.take(room));
    });
}

/// Records work that the next cycle after the commit does, this often.
pub(crate) fn left(left: Left, count: i64) {
    record(0, |pending| *pending.left.entry(left).or_default() += count);
}

/// Returns whether this transaction has left work to the next cycle.
pub(crate) fn has_left() -> bool {
    PENDING.with_borrow(|pending| !pending.left.is_empty())
}

/// Records that this transaction grants leases without knowing a limit of the database.
pub(crate) fn granted_beside_limit() {
    record(0, |pending| pending.beside_limit = true);
}

/// Returns the first job, at most `first`, whose lease may count although this transaction does not
/// see it; `None` when that is not known.
pub(crate) fn first_that_may_count(first: i64) -> Option<i64> {
    PENDING.with_borrow(|pending| {
        let ended = pending.ended.unwrap_or(i64::MAX);
        (!pending.manual).then_some(first.min(ended))
    })
}

/// Records that a user's statement changes the queue, leases or groups: shared memory's data on
/// them is invalid.
pub(crate) fn manual_change() {
    taken();
    record(wake::WORK, |pending| pending.manual = true);
}

/// Applies the changes of groups by this transaction, for its own claims.
pub(crate) fn apply_own() {
    PENDING.with_borrow(|pending| {
        if pending.manual || pending.rates {
            memory::void_bounds();
        }
        open_gates(pending);
    });
}

/// Prepares for the commit: no count that sees this transaction may use a bound from before it.
pub(crate) fn committing() {
    PENDING.with_borrow(|pending| {
        if pending.manual {
            memory::suspend_bounds();
        }
        if pending.beside_limit {
            Bound::of_database().suspend();
        }
    });
}

/// Publishes the changes of the transaction, after its commit.
pub(crate) fn committed() {
    let pending = PENDING.take();
    if pending.manual {
        memory::forget();
    }
    memory::resume_bounds();
    if pending.rates {
        memory::void_bounds();
    }
    if !pending.claimable.is_empty() {
        memory::lower(
            pending
                .claimable
                .iter()
                .map(|(&section, &job_id)| (section, job_id)),
        );
    }
    if (pending.configured || pending.manual)
        && let Some(bell) = memory::bell()
    {
        bell.configure();
    }
    open_gates(&pending);
    left::add(pending.left.into_iter());
    if let Some(bell) = memory::bell() {
        bell.add_cancelled(&pending.cancel_requested);
    }
    if pending.too_many_ended || pending.manual {
        waiting::ring_all();
    } else {
        waiting::jobs_ended(&pending.ended_jobs);
    }
}

/// Keeps the changes of a transaction that was prepared under a name with this hash: another
/// session will end it.
pub(crate) fn prepared(name: u64) {
    let pending = PENDING.take();
    open_gates(&pending);
    left::add(pending.left.into_iter());
    let rows = pending.claimable.iter();
    let claimable = prepared::claimable(rows.map(|(&section, &job_id)| (section, job_id)));
    let claimable = claimable.filter(|_| !pending.manual);
    prepared::remember(name, claimable, pending.configured || pending.manual);
}

/// Publishes the changes of prepared transactions that have ended. Returns the hashes of the names
/// of those that had recorded changes.
pub(crate) fn prepared_ended() -> Vec<u64> {
    let ended = prepared::ended();
    for prepared in &ended {
        match prepared.claimable {
            None => memory::forget(),
            Some(sections) => memory::lower(sections.into_iter().flatten()),
        }
        if prepared.configured
            && let Some(bell) = memory::bell()
        {
            bell.configure();
        }
        memory::void_bounds();
        prepared::forget(prepared);
    }
    ended.iter().map(|prepared| prepared.name).collect()
}

/// Drops the changes of the transaction when it, or a part of it, is rolled back.
pub(crate) fn undone(whole: bool) {
    if whole {
        memory::resume_bounds();
        open_undone(&PENDING.take());
    } else {
        PENDING.with_borrow(open_undone);
    }
}

/// Opens the gates that this transaction may have closed because of its own changes, too.
fn open_undone(pending: &PendingChanges) {
    open_gates(pending);
    let started = pending.started_lanes.iter().copied();
    started.for_each(memory::first_may_differ);
    if pending.rates || pending.closed_rates {
        memory::void_bounds();
    }
}

fn open_gates(pending: &PendingChanges) {
    pending.gates.iter().for_each(|gate| gate.open());
    let lanes = pending.claimable.keys().map(|section| section.lane);
    let lanes = lanes.chain(pending.left_lanes.iter().copied());
    lanes.for_each(memory::first_may_differ);
}
