//! Needs: jobs that wait for the ends of other jobs.
//!
//! Enters: a job that begins to wait for others; the end of a job that others may need. Leaves: the
//! job claimable, by the first cycle after its wait is over. Holds: each end and each beginning of
//! a wait adds a row to `trax.need_event` in its own transaction, and a cycle takes those rows only
//! after they are committed. So of a job that ends while another begins to wait for it, the event
//! that is committed last is taken by a cycle that sees both, and no wait is missed. The end of a
//! job changes no row that the end of another changes. The repair adds an event for jobs that wait,
//! for rows that were deleted by hand.

use crate::changes;
use crate::changes::Claimable;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Table, columns};
use crate::wake;
use std::cell::Cell;
use std::collections::HashSet;

columns!(
    /// Columns of a need.
    Need in c"need" {
        NeededJobId: c"needed_job_id",
        JobId: c"job_id",
        OneIsEnough: c"one_is_enough",
    }
);

columns!(
    /// Columns of an event.
    Event in c"need_event" {
        JobId: c"job_id",
    }
);

/// The most events that one cycle takes; the next cycle follows at once.
pub(crate) const EVENTS_AT_MOST: i64 = 10_000;
/// The most waiting jobs that one repair reads.
const REPAIR_AT_MOST: i64 = 1000;

row! {
    /// A job one of whose needs is met.
    struct Met {
        job_id: i64,
        one_is_enough: bool,
    }
}
statement!(
    NeedAdd, "job_needs/need.sql",
    { job_id: INT8OID, needed_job_ids: INT8ARRAYOID, one_is_enough: BOOLOID }
);
statement!(NeedForget, "job_needs/forget.sql", { job_id: INT8OID });
statement!(EventAdd, "job_needs/event.sql", { job_ids: INT8ARRAYOID });
statement!(EventsTake, "job_needs/events_take.sql", { at_most: INT8OID } -> i64);
statement!(NeedsMet, "job_needs/met.sql", { job_ids: INT8ARRAYOID } -> Met);
statement!(
    NeedyWake, "job_needs/wake.sql",
    { job_ids: INT8ARRAYOID, enough: INT8ARRAYOID, now: TIMESTAMPTZOID } -> Claimable
);
statement!(NeedyList, "job_needs/waiting.sql", { after: INT8OID, at_most: INT8OID } -> i64);

/// Returns the table of needs; its primary key begins with the needed job.
pub(crate) fn table() -> Table {
    Table::open(Need::TABLE, Need::ALL)
}

/// Records that a job begins to wait for others.
pub(crate) fn begin_wait(spi: &Spi, job_id: i64, needed: Vec<i64>, one_is_enough: bool) {
    spi.execute(NeedAdd {
        job_id: arg(job_id),
        needed_job_ids: arg(needed),
        one_is_enough: arg(one_is_enough),
    });
    add_events(spi, vec![job_id]);
}

/// Forgets what a job waited for.
pub(crate) fn end_wait(spi: &Spi, job_id: i64) {
    spi.execute(NeedForget {
        job_id: arg(job_id),
    });
}

/// Records that something has happened to jobs which may end the wait of others.
pub(crate) fn add_events(spi: &Spi, job_ids: Vec<i64>) {
    if job_ids.is_empty() {
        return;
    }
    spi.execute(EventAdd {
        job_ids: arg(job_ids),
    });
    wake::mark(wake::DUE);
}

/// Makes the jobs claimable whose wait for others is over; returns their number, and whether more
/// events are left.
pub(crate) fn wake_jobs(spi: &Spi, now: Timestamp) -> (usize, bool) {
    let events = Table::open(Event::TABLE, Event::ALL);
    let has_none = events.has_no_page();
    events.close();
    if has_none {
        return (0, false);
    }
    let jobs: Vec<i64> = spi
        .query(EventsTake {
            at_most: arg(EVENTS_AT_MOST),
        })
        .iter()
        .collect();
    if jobs.is_empty() {
        return (0, false);
    }
    let more = jobs.len() as i64 == EVENTS_AT_MOST;
    let mut waiting: HashSet<i64> = jobs.iter().copied().collect();
    let met = spi.query(NeedsMet { job_ids: arg(jobs) });
    let enough: Vec<i64> = met
        .iter()
        .inspect(|job| {
            waiting.insert(job.job_id);
        })
        .filter(|job| job.one_is_enough)
        .map(|job| job.job_id)
        .collect();
    let woken = changes::rows_claimable(&spi.query(NeedyWake {
        job_ids: arg(waiting.into_iter().collect::<Vec<i64>>()),
        enough: arg(enough),
        now: arg(now),
    }));
    (woken, more)
}

thread_local! {
    /// The last waiting job that the repair of this session has read.
    static REPAIRED: Cell<i64> = const { Cell::new(0) };
}

/// Adds an event for jobs that wait for others: the next cycle looks at each again.
pub(crate) fn repair(spi: &Spi) {
    let waiting: Vec<i64> = spi
        .query(NeedyList {
            after: arg(REPAIRED.get()),
            at_most: arg(REPAIR_AT_MOST),
        })
        .iter()
        .collect();
    let is_last = (waiting.len() as i64) < REPAIR_AT_MOST;
    REPAIRED.set(waiting.last().filter(|_| !is_last).copied().unwrap_or(0));
    add_events(spi, waiting);
}
