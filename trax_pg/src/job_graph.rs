//! Graphs: which jobs belong together.
//!
//! Words: a *graph* is jobs that were queued together; a *batch* is a graph to which jobs are added
//! until it is sealed, and its number is that of the job which runs after all of them.
//!
//! Enters: the jobs of a graph, jobs that are added to a batch, and jobs that take the place of
//! others. Leaves: the rows of `trax.graph` and `trax.graph_job`, and the needs of the job of a
//! batch (`job_needs`). Holds: no row here changes when a job ends, and a graph stays readable
//! until none of its jobs is in the history. Who adds a job to a batch keeps it from being sealed
//! until the transaction ends. A job of the batch that is executed may add others even after that:
//! the batch needs it until it ends.

use crate::access_scope::Scope;
use crate::error::{Error, Result};
use crate::job_needs;
use crate::job_needs::{Condition, NewNeed};
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Inserter, Table, columns};
use pgrx::pg_sys;
use std::cell::Cell;
use std::collections::BTreeSet;

columns!(
    /// Columns of a job of a graph.
    Member in c"graph_job" {
        JobId: c"job_id",
        GraphId: c"graph_id",
        ReplacedBy: c"replaced_by",
        Condition: c"condition",
        Name: c"name",
        Needs: c"needs",
    }
);

/// The most graphs that one cleanup reads.
const FORGET_AT_MOST: i64 = 1000;

row! {
    struct FoundGraph {
        graph_id: i64,
        is_alive: bool,
    }
}
statement!(GraphAlive, "job_graph/alive.sql", { key: TEXTOID } -> FoundGraph);
statement!(GraphFreeKey, "job_graph/free_key.sql", { graph_id: INT8OID, key: TEXTOID });
statement!(
    GraphAdd, "job_graph/add.sql",
    { graph_id: INT8OID, now: TIMESTAMPTZOID, is_batch: BOOLOID, key: TEXTOID }
);
statement!(GraphIsBatch, "job_graph/is_batch.sql", { graph_id: INT8OID } -> bool);
statement!(GraphReplace, "job_graph/replace.sql", { replaced_job_id: INT8OID, job_id: INT8OID });
statement!(
    GraphForget, "job_graph/forget.sql",
    { after: INT8OID, before: TIMESTAMPTZOID, at_most: INT8OID } -> Option<i64>
);

/// A job of a graph.
pub(crate) struct NewMember<'member> {
    pub(crate) job_id: i64,
    pub(crate) graph_id: i64,
    /// How the jobs must end that it needs.
    pub(crate) condition: Option<Condition>,
    pub(crate) name: Option<&'member str>,
    pub(crate) needs: Option<pg_sys::Datum>,
}

/// Adds a graph; returns the one that has its unique key, while a job of that is alive.
pub(crate) fn add(
    spi: &Spi,
    graph_id: i64,
    is_batch: bool,
    key: Option<&str>,
    now: Timestamp,
) -> std::result::Result<(), i64> {
    loop {
        if let Some(key) = key {
            let found = spi.query_latest(GraphAlive { key: arg(key) }).first();
            match found {
                Some(found) if found.is_alive => return Err(found.graph_id),
                Some(found) => {
                    spi.change_latest(GraphFreeKey {
                        graph_id: arg(found.graph_id),
                        key: arg(key),
                    });
                }
                None => {}
            }
        }
        let added = spi.change_latest(GraphAdd {
            graph_id: arg(graph_id),
            now: arg(now),
            is_batch: arg(is_batch),
            key: key.and_then(arg),
        });
        if added.len() == 1 {
            return Ok(());
        }
        // Another session has taken the key meanwhile.
    }
}

/// Adds jobs to graphs.
pub(crate) fn add_members<'member>(members: impl ExactSizeIterator<Item = NewMember<'member>>) {
    let table = Table::open(Member::TABLE, Member::ALL);
    let mut rows = Inserter::begin(&table, members.len());
    for member in members {
        let mut row = rows.row();
        row.set(Member::JobId, arg(member.job_id));
        row.set(Member::GraphId, arg(member.graph_id));
        row.set(
            Member::Condition,
            member.condition.and_then(|condition| arg(condition.name())),
        );
        row.set(Member::Name, member.name.and_then(arg));
        row.set(Member::Needs, member.needs);
    }
    rows.end();
    table.close();
}

/// Adds new jobs to a batch that this transaction keeps open.
pub(crate) fn add_to_batch(batch: i64, job_ids: &[i64]) {
    job_needs::add(job_ids.iter().map(|&job_id| NewNeed {
        needed_job_id: job_id,
        job_id: batch,
        condition: Condition::Ended,
        one_is_enough: false,
        awaits_requeue: false,
    }));
    add_members(job_ids.iter().map(|&job_id| NewMember {
        job_id,
        graph_id: batch,
        condition: None,
        name: None,
        needs: None,
    }));
}

/// Lets no other session seal a batch until the transaction ends.
pub(crate) fn lock(batch: i64) {
    Lock::Batch(batch).take(Mode::Share);
}

/// Keeps a batch open until the transaction ends; `adding` is the job that adds to it, if it is
/// known.
///
/// # Errors
/// 42501 when the caller may not queue the job of the batch, 42704 when there is no such job, 55000
/// when it is no batch, or was sealed.
pub(crate) fn keep_open(spi: &Spi, scope: &Scope, batch: i64, adding: Option<i64>) -> Result<()> {
    lock(batch);
    scope.require_job_as(spi, batch, || format!("batch {batch}"))?;
    if job_needs::needs(spi, batch, batch)
        || adding.is_some_and(|job_id| job_needs::needs(spi, batch, job_id))
    {
        return Ok(());
    }
    require_batch(spi, batch)?;
    Err(Error::wrong_state(format!("batch {batch} is sealed"))
        .detail("No job is added to a batch that is sealed, except by a job of it that is executed.")
        .hint(format!(
            "In a job of the batch: select trax.spawn(job_id, token, step, task, input, batch => {batch}); otherwise open another: select trax.open_batch('...')"
        )))
}

/// Keeps batches open, in the order of their numbers, for jobs that are added from outside; returns
/// them.
pub(crate) fn keep_all_open(
    spi: &Spi,
    scope: &Scope,
    batches: impl Iterator<Item = i64>,
) -> Result<BTreeSet<i64>> {
    let batches: BTreeSet<i64> = batches.collect();
    for &batch in &batches {
        keep_open(spi, scope, batch, None)?;
    }
    Ok(batches)
}

/// Returns an error for a number that is not that of a batch.
pub(crate) fn require_batch(spi: &Spi, batch: i64) -> Result<()> {
    let graph = GraphIsBatch {
        graph_id: arg(batch),
    };
    if spi.query_latest(graph).first() == Some(true) {
        return Ok(());
    }
    Err(Error::unknown(format!("batch {batch} does not exist"))
        .detail(format!("No batch was opened with job {batch}."))
        .hint("Specify the number of a batch: batch => ...; or open one: select trax.open_batch('...')"))
}

/// Puts a job into the place that an ended one has in its graphs. What waits for the dead letter of
/// that job waits for the new one.
pub(crate) fn replace(spi: &Spi, replaced_job_id: i64, job_id: i64) {
    let members = Table::open(Member::TABLE, Member::ALL);
    if job_needs::having_rows(
        members,
        c"graph_job_pkey",
        Member::JobId,
        &[replaced_job_id],
    )
    .is_empty()
    {
        return;
    }
    spi.execute(GraphReplace {
        replaced_job_id: arg(replaced_job_id),
        job_id: arg(job_id),
    });
    job_needs::replace(spi, replaced_job_id, job_id);
}

thread_local! {
    /// The graph up to which the cleanup of this session has read.
    static LOOKED: Cell<i64> = const { Cell::new(-1) };
}

/// Deletes graphs of which nothing is left.
pub(crate) fn forget(spi: &Spi, before: Timestamp) {
    let last = spi.query(GraphForget {
        after: arg(LOOKED.get()),
        before: arg(before),
        at_most: arg(FORGET_AT_MOST),
    });
    LOOKED.set(last.one().unwrap_or(-1));
}
