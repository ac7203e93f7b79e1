//! Needs: jobs that wait for the ends of other jobs.
//!
//! Words: a *need* is met when the needed job has ended as its condition says: completed, ended in
//! any way, or failed (a cancel counts). A job is *doomed* when one of its needs cannot be met any
//! more. An open batch needs itself, until it is sealed.
//!
//! Enters: a job that begins to wait for others; the end of a job that others need. Leaves: the job
//! claimable, or the decision to cancel it, by the first cycle after its wait is over. Holds:
//! - Each end and each beginning of a wait adds a row to `trax.need_event` in its own transaction,
//!   and a cycle takes those rows only after they are committed. So of a job that ends while
//!   another begins to wait for it, the event that is committed last is taken by a cycle that sees
//!   both, and no wait is missed.
//! - The end of a job changes no row that the end of another changes, and adds no event if nobody
//!   needs it, or may just begin to. A job that needs many others is not looked at through its
//!   needs: each of their ends deletes one.
//! - What happens next is decided once: the cycle that decides has locked the waiting job, and the
//!   decision commits with its effect. A cycle waits for no row; what another transaction has
//!   locked keeps its event.
//!
//! The repair adds an event for jobs that wait: for rows that were deleted by hand, and for a job
//! that ended, in a transaction of its own, while another added the first row of `trax.need`.

mod decide;
mod judge;

use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Index, Inserter, Table, View, Walk, columns};
use crate::wake;
pub(crate) use decide::{Decided, decide};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::CStr;

columns!(
    /// Columns of a need.
    Need in c"need" {
        NeededJobId: c"needed_job_id",
        JobId: c"job_id",
        OneIsEnough: c"one_is_enough",
        AwaitsRequeue: c"awaits_requeue",
        Condition: c"condition",
    }
);

columns!(
    /// Columns of an event.
    Event in c"need_event" {
        JobId: c"job_id",
        Waits: c"waits",
    }
);

/// The most waiting jobs, and the most needs, that one repair reads.
const REPAIR_AT_MOST: i64 = 1000;

row! {
    struct Read {
        job_id: i64,
        has_ended: bool,
    }
}
statement!(NeedForget, "job_needs/forget.sql", { job_id: INT8OID });
statement!(NeedsForgetFree, "job_needs/forget_free.sql", { job_ids: INT8ARRAYOID });
statement!(
    NeedsReplace, "job_needs/replace.sql",
    { replaced_job_id: INT8OID, job_id: INT8OID }
);
statement!(NeedIs, "job_needs/needs.sql", { needed_job_id: INT8OID, job_id: INT8OID } -> bool);
statement!(NeedSeal, "job_needs/seal.sql", { batch: INT8OID });
statement!(NeedyList, "job_needs/waiting.sql", { after: INT8OID, at_most: INT8OID } -> i64);
statement!(NeedsRead, "job_needs/unmet.sql", { after: INT8OID, at_most: INT8OID } -> Read);

/// How a needed job must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Completed,
    Ended,
    /// It fails, or is cancelled; of several needed jobs one is enough.
    Failed,
}

impl Condition {
    pub(crate) const ALL: [Self; 3] = [Self::Completed, Self::Ended, Self::Failed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// A need of a job that is queued with the needed one, or after it in its transaction.
pub(crate) struct NewNeed {
    pub(crate) needed_job_id: i64,
    pub(crate) job_id: i64,
    pub(crate) condition: Condition,
    /// The job waits for the first of its needs.
    pub(crate) one_is_enough: bool,
    /// A dead letter that waits for a person does not end the wait.
    pub(crate) awaits_requeue: bool,
}

fn table() -> Table {
    Table::open(Need::TABLE, Need::ALL)
}

/// Returns those of some jobs that have rows in a table, in ascending order. The first column of
/// the index is `column` of the table.
pub(crate) fn having_rows(
    table: Table,
    index: &'static CStr,
    column: impl Into<usize>,
    job_ids: &[i64],
) -> Vec<i64> {
    let mut having = Vec::new();
    if !table.has_no_page() {
        let mut job_ids = job_ids.to_vec();
        job_ids.sort_unstable();
        let index = Index::open(&table, index);
        let view = View::latest();
        let mut walk = Walk::begin(&index, &view, column);
        for (place, &job_id) in job_ids.iter().enumerate() {
            let later = job_ids[place + 1..].iter().copied();
            if walk.goes_to(job_id, later) {
                having.push(job_id);
            }
        }
        walk.end();
        view.end();
        index.close();
    }
    table.close();
    having
}

/// Returns those of some jobs that others need.
fn needed(job_ids: &[i64]) -> Vec<i64> {
    having_rows(table(), c"need_pkey", Need::NeededJobId, job_ids)
}

/// Returns whether a job may need another.
fn are_any() -> bool {
    let table = table();
    let has_none = table.has_no_page();
    table.close();
    !has_none
}

/// The end of a job.
pub(crate) struct End {
    pub(crate) job_id: i64,
    /// Another job spawned it, or is undone by it.
    pub(crate) has_parent: bool,
    pub(crate) has_unique_key: bool,
}

/// Tells the jobs that need others of their ends. A job may just begin to wait for one that has a
/// unique key without having spawned it, in a transaction that is not seen here.
pub(crate) fn ended(ends: &[End]) {
    let are_any = ends.iter().any(|end| end.has_unique_key) && are_any();
    let mut needed = needed(&ends.iter().map(|end| end.job_id).collect::<Vec<i64>>());
    let may_be = |end: &&End| end.has_parent || are_any && end.has_unique_key;
    needed.extend(ends.iter().filter(may_be).map(|end| end.job_id));
    needed.sort_unstable();
    needed.dedup();
    add_events(&needed);
}

/// Adds needs of jobs of which none can have ended before this transaction commits.
pub(crate) fn add(needs: impl ExactSizeIterator<Item = NewNeed>) {
    let table = table();
    let mut rows = Inserter::begin(&table, needs.len());
    for need in needs {
        let mut row = rows.row();
        row.set(Need::NeededJobId, arg(need.needed_job_id));
        row.set(Need::JobId, arg(need.job_id));
        row.set(Need::OneIsEnough, arg(need.one_is_enough));
        row.set(Need::AwaitsRequeue, arg(need.awaits_requeue));
        row.set(Need::Condition, arg(need.condition.name()));
    }
    rows.end();
    table.close();
}

/// Lets a batch wait until it is sealed.
pub(crate) fn open_batch(batch: i64) {
    let needs = [NewNeed {
        needed_job_id: batch,
        job_id: batch,
        condition: Condition::Ended,
        one_is_enough: false,
        awaits_requeue: false,
    }];
    add(needs.into_iter());
}

/// Seals a batch; returns false when it was not open.
pub(crate) fn seal_batch(spi: &Spi, batch: i64) -> bool {
    let is_open = spi.change_latest(NeedSeal { batch: arg(batch) }).len() == 1;
    if is_open {
        add_events(&[batch]);
    }
    is_open
}

/// Returns whether a job waits for the end of another.
pub(crate) fn needs(spi: &Spi, job_id: i64, needed_job_id: i64) -> bool {
    spi.query_latest(NeedIs {
        needed_job_id: arg(needed_job_id),
        job_id: arg(job_id),
    })
    .one()
}

/// Records that a job begins to wait for others, some of which may have ended.
pub(crate) fn begin_wait(spi: &Spi, job_id: i64, needed: BTreeSet<i64>, one_is_enough: bool) {
    // A wait that timed out has left needs.
    if !having_rows(table(), c"need_job", Need::JobId, &[job_id]).is_empty() {
        end_wait(spi, job_id);
    }
    add(needed.into_iter().map(|needed_job_id| NewNeed {
        needed_job_id,
        job_id,
        condition: Condition::Ended,
        one_is_enough,
        awaits_requeue: false,
    }));
    keep_events(&[job_id], true);
    wake::mark(wake::DUE);
}

/// Forgets what a job waited for.
pub(crate) fn end_wait(spi: &Spi, job_id: i64) {
    spi.execute(NeedForget {
        job_id: arg(job_id),
    });
}

/// Forgets what jobs needed that have ended while they waited.
pub(crate) fn forget(spi: &Spi, job_ids: &[i64]) {
    if are_any() && !job_ids.is_empty() {
        spi.execute(NeedsForgetFree {
            job_ids: arg(job_ids.to_vec()),
        });
    }
}

/// Records that something has happened to jobs which may end the wait of others, or their own.
pub(crate) fn add_events(job_ids: &[i64]) {
    keep_events(job_ids, false);
    if !job_ids.is_empty() {
        wake::mark(wake::DUE);
    }
}

fn keep_events(job_ids: &[i64], waits: bool) {
    if job_ids.is_empty() {
        return;
    }
    let events = Table::open(Event::TABLE, Event::ALL);
    let mut rows = Inserter::begin(&events, job_ids.len());
    for &job_id in job_ids {
        let mut row = rows.row();
        row.set(Event::JobId, arg(job_id));
        row.set(Event::Waits, arg(waits));
    }
    rows.end();
    events.close();
}

/// Lets the jobs that wait for a dead letter wait for the job in its place.
pub(crate) fn replace(spi: &Spi, replaced_job_id: i64, job_id: i64) {
    spi.execute(NeedsReplace {
        replaced_job_id: arg(replaced_job_id),
        job_id: arg(job_id),
    });
}

/// Records that no job will be queued in the place of a dead letter's.
pub(crate) fn given_up(job_id: i64) {
    add_events(&needed(&[job_id]));
}

thread_local! {
    /// The last waiting job, and the last needed job, that the repair of this session has read.
    static REPAIRED: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// Adds an event for jobs that wait for others, and for jobs that have ended although others need
/// them: the next cycle looks at each again.
pub(crate) fn repair(spi: &Spi) {
    let (waiting_after, needed_after) = REPAIRED.get();
    let waiting: Vec<i64> = spi
        .query(NeedyList {
            after: arg(waiting_after),
            at_most: arg(REPAIR_AT_MOST),
        })
        .iter()
        .collect();
    let needed: Vec<Read> = spi
        .query(NeedsRead {
            after: arg(needed_after),
            at_most: arg(REPAIR_AT_MOST),
        })
        .iter()
        .collect();
    let next = |count: usize, last: Option<i64>| match count as i64 == REPAIR_AT_MOST {
        true => last.unwrap_or(0),
        false => 0,
    };
    REPAIRED.set((
        next(waiting.len(), waiting.last().copied()),
        next(needed.len(), needed.last().map(|need| need.job_id)),
    ));
    add_events(&waiting);
    let ended = needed.iter().filter(|need| need.has_ended);
    let mut ended: Vec<i64> = ended.map(|need| need.job_id).collect();
    ended.dedup();
    add_events(&ended);
}
