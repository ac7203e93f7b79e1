//! The memory of jobs: their steps, the signals sent to them, and the jobs that undo their steps.
//!
//! Enters: the end of a job; a job that begins with the steps of another. Leaves: the steps in the
//! last row of `trax.run`, and after a failure or a cancel the jobs that undo them. Holds: the rows
//! of `trax.step` belong to living jobs. Undo jobs are queued in the transaction of the end, and
//! run one after the other, the newest step first: each needs the end of the one before it
//! (`job_needs`), whatever that became, so that one that fails does not keep the others from being
//! undone. A job without steps costs two probes of an index at its end, and none while no job has
//! a step or a signal.

use crate::columns::Step;
use crate::error::{Error, Result};
use crate::job_needs;
use crate::job_needs::End;
use crate::manifest_state::job_ended::Ended;
use crate::server::call::{checked_name, new_name};
use crate::server::clock::Timestamp;
use crate::server::json;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Table, columns};
use crate::work_queue;
use crate::work_queue::NewJob;
use pgrx::pg_sys;
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

columns!(
    /// Columns of a signal.
    Signal in c"signal" {
        JobId: c"job_id",
        SentAt: c"sent_at",
        TakenAt: c"taken_at",
        Position: c"position",
        Awaited: c"awaited",
        Name: c"name",
        SignalId: c"signal_id",
        Payload: c"payload",
    }
);

/// The most signals that one repair reads.
const REPAIR_AT_MOST: i64 = 1000;

row! {
    struct Kept {
        job_id: i64,
        steps: Option<pg_sys::Datum>,
    }
}
row! {
    /// The job that undoes a step.
    struct Undo {
        job_id: i64,
        task: String,
        input: Option<pg_sys::Datum>,
    }
}
row! {
    /// What the undo jobs of an ended job share with it.
    struct EndedJob {
        group_name: String,
        priority: i16,
        version: Option<String>,
    }
}
statement!(StepsKept, "job_steps/kept.sql", { job_ids: INT8ARRAYOID } -> Kept);
statement!(StepsForget, "job_steps/forget.sql", { job_ids: INT8ARRAYOID } -> Undo);
statement!(
    StepsRestore, "job_steps/restore.sql",
    { job_id: INT8OID, steps: JSONBOID, before: INT8OID } -> String
);
statement!(StepsSetCount, "job_steps/set_count.sql", { job_id: INT8OID, steps: INT4OID });
statement!(StepsEndedJob, "job_steps/ended_job.sql", { job_id: INT8OID } -> EndedJob);
statement!(StepsTrees, "job_steps/trees.sql", { job_ids: INT8ARRAYOID } -> i64);
statement!(
    SignalsPassOn, "job_steps/pass_on_signals.sql",
    { replaced_job_id: INT8OID, job_id: INT8OID }
);
statement!(
    SignalsForget, "job_steps/orphans_forget.sql",
    { after: INT8OID, at_most: INT8OID } -> Option<i64>
);

fn having_steps(job_ids: &[i64]) -> Vec<i64> {
    let steps = Table::open(Step::TABLE, Step::ALL);
    job_needs::having_rows(steps, c"step_pkey", Step::JobId, job_ids)
}

/// Returns the steps of those jobs that have some, as `trax.run` keeps them.
pub(crate) fn kept(spi: &Spi, job_ids: &[i64]) -> HashMap<i64, pg_sys::Datum> {
    let having = having_steps(job_ids);
    if having.is_empty() {
        return HashMap::new();
    }
    let rows = spi.query_latest(StepsKept {
        job_ids: arg(having),
    });
    rows.iter()
        .filter_map(|kept| Some((kept.job_id, kept.steps?)))
        .collect()
}

/// Applies the end of jobs: forgets what they remembered, queues what undoes the steps of those
/// that have not succeeded, and tells the jobs that need their end.
pub(crate) fn ended(spi: &Spi, ended: &[Ended], now: Timestamp) {
    let job_ids: Vec<i64> = ended.iter().map(|job| job.job_id).collect();
    let ends = ended.iter().map(|job| End {
        job_id: job.job_id,
        has_parent: job.parent_job_id.is_some(),
        has_unique_key: job.unique_key.is_some(),
    });
    job_needs::ended(&ends.collect::<Vec<End>>());
    let mut having = having_steps(&job_ids);
    let signals = Table::open(Signal::TABLE, Signal::ALL);
    having.extend(job_needs::having_rows(
        signals,
        c"signal_pkey",
        Signal::JobId,
        &job_ids,
    ));
    if having.is_empty() {
        return;
    }
    let rows = spi.change_latest(StepsForget {
        job_ids: arg(having),
    });
    let undo: Vec<Undo> = rows.iter().collect();
    for job in ended.iter().filter(|job| !job.succeeded) {
        undo_steps(
            spi,
            job.job_id,
            undo.iter().filter(|step| step.job_id == job.job_id),
            now,
        );
    }
}

/// Queues the jobs that undo the steps of a job, each to run after the one before it.
fn undo_steps<'undo>(
    spi: &Spi,
    job_id: i64,
    steps: impl Iterator<Item = &'undo Undo>,
    now: Timestamp,
) {
    let mut steps = steps.peekable();
    if steps.peek().is_none() {
        return;
    }
    let of = spi.query(StepsEndedJob {
        job_id: arg(job_id),
    });
    let Some(of) = of.first() else { return };
    let mut before: Option<i64> = None;
    for step in steps {
        let job = NewJob {
            priority: i32::from(of.priority),
            parent_job_id: Some(job_id),
            version: of.version.clone(),
            waits_for_jobs: before.is_some(),
            ..NewJob::plain(step.task.clone(), of.group_name.clone(), now)
        };
        let input = step.input.unwrap_or_else(work_queue::empty_object);
        let undo = work_queue::enqueue(spi, &job, Some(input));
        if let Some(before) = before {
            job_needs::begin_wait(spi, undo, BTreeSet::from([before]), false);
        }
        before = Some(undo);
    }
}

/// Checks the description of a job that undoes a step; returns its task.
pub(crate) fn checked_undo(undo: pg_sys::Datum) -> Result<String> {
    work_queue::check_size("undo", undo)?;
    let shape = || {
        Error::invalid("argument \"undo\" must name a task")
            .hint("For example: undo => '{\"task\": \"card.refund\", \"input\": {\"charge\": 7}}'")
    };
    let value = json::value(undo, "argument \"undo\"")?;
    let Some(object) = value.as_object() else {
        return Err(shape().detail("undo is not an object."));
    };
    if let Some(other) = object
        .keys()
        .find(|key| !["task", "input"].contains(&key.as_str()))
    {
        return Err(shape().detail(format!("undo has \"{other}\"; task and input are known.")));
    }
    let task = object.get("task").and_then(|task| task.as_str());
    let task = task.ok_or_else(|| shape().detail("undo has no text \"task\"."))?;
    let task = checked_name(task.to_owned(), "undo.task")?;
    let task = new_name(task, "undo.task")?;
    work_queue::refuse_sql_task(&task)?;
    Ok(task)
}

/// Adds the steps of an earlier job, or those before a place, to a new job.
pub(crate) fn restore(spi: &Spi, job_id: i64, steps: pg_sys::Datum, before: Option<i64>) -> usize {
    spi.execute(StepsRestore {
        job_id: arg(job_id),
        steps: Some(steps),
        before: before.and_then(arg),
    })
}

/// Adds the steps of the job whose place a queued one takes.
pub(crate) fn restore_for(spi: &Spi, job_id: i64, steps: pg_sys::Datum) {
    let count = restore(spi, job_id, steps, None);
    spi.execute(StepsSetCount {
        job_id: arg(job_id),
        steps: arg(count as i32),
    });
}

/// Gives the signals that a dead job has not taken to the job that takes its place.
pub(crate) fn pass_on_signals(spi: &Spi, replaced_job_id: i64, job_id: i64) {
    spi.change_latest(SignalsPassOn {
        replaced_job_id: arg(replaced_job_id),
        job_id: arg(job_id),
    });
}

/// Returns jobs and their descendants in the order of their ids: those that live, and of the others
/// those that may have children.
pub(crate) fn trees(spi: &Spi, roots: &[i64]) -> Vec<i64> {
    let trees = StepsTrees {
        job_ids: arg(roots.to_vec()),
    };
    spi.query_latest(trees).iter().collect()
}

thread_local! {
    /// The job up to which the repair of this session has read the signals.
    static REPAIRED: Cell<i64> = const { Cell::new(-1) };
}

/// Deletes signals that were sent while their job ended, or whose dead letter is resolved.
pub(crate) fn repair(spi: &Spi) {
    let last = spi.query(SignalsForget {
        after: arg(REPAIRED.get()),
        at_most: arg(REPAIR_AT_MOST),
    });
    REPAIRED.set(last.one().unwrap_or(-1));
}
