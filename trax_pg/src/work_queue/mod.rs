//! The work queue: the waiting jobs.
//!
//! Words: a *lane* is one task in one group, or one version of it, from which a claim picks; its
//! number is a hash of the names. A *delayed* job waits for its time and is in no lane until then.
//!
//! Enters: jobs by hand (`trax.enqueue`), from the cycle, and retries. Leaves: claimed and
//! cancelled jobs. Holds: a waiting row is claimable exactly when `waits_for` is null; a unique key
//! that is alive has one job.
//!
//! Cost with warm caches: enqueueing one job touches 6 buffers, 100 jobs in one call 504.

mod alike;
mod new_job;
mod overflow;
mod rewrite;

use crate::access_scope;
use crate::access_scope::Scope;
use crate::audit;
use crate::audit::Kind;
use crate::changes::Claimable;
use crate::columns::{SQL_TASK, Waiting};
use crate::error::{Error, Result};
use crate::job_graph;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, array_elements, statement, value_bytes};
use crate::server::table;
use crate::server::table::{Inserter, Table};
use crate::setting;
use crate::task;
use crate::task::Defaults;
use crate::unique_key;
use crate::unique_key::{Found, KeyTaken, Wanted};
use crate::{changes, unseen, wake};
pub(crate) use alike::{Alike, enqueue_each, insert_each};
pub(crate) use new_job::{NewJob, OnDuplicate};
pub(crate) use overflow::lock_all as lock_groups;
use pgrx::pg_sys;
use rewrite::Met;
use std::ops::Range;

/// The job of a call that queues one.
pub(crate) enum Placed {
    Queued(i64),
    /// Its full group has dropped it: a cancelled run.
    Dropped(i64),
    /// A job that waited before has its input and options.
    Rewritten(i64),
}

impl Placed {
    fn new(id: i64, is_queued: bool) -> Self {
        match is_queued {
            true => Self::Queued(id),
            false => Self::Dropped(id),
        }
    }

    pub(crate) fn id(self) -> i64 {
        match self {
            Self::Queued(id) | Self::Dropped(id) | Self::Rewritten(id) => id,
        }
    }
}

/// The most delayed jobs that one cycle makes claimable; the next cycle follows at once.
pub(crate) const PROMOTE_AT_MOST: i64 = 10_000;

statement!(QueueRemove, "work_queue/remove.sql", { job_id: INT8OID });
statement!(
    QueuePromote, "work_queue/promote.sql",
    { now: TIMESTAMPTZOID, at_most: INT8OID } -> Claimable
);
statement!(
    QueueHasten, "work_queue/hasten.sql",
    { job_id: INT8OID, now: TIMESTAMPTZOID } -> Claimable
);
statement!(
    QueueLimit, "work_queue/limit.sql",
    { job_id: INT8OID, now: TIMESTAMPTZOID, micros: INT8OID }
);
statement!(QueueState, "work_queue/job_state.sql", { job_id: INT8OID } -> Option<String>);
statement!(QueueNextDue, "work_queue/next_due.sql" -> Option<Timestamp>);

sql_function!(trax_enqueue, pg_finfo_trax_enqueue, |call| {
    as_owner(call, |caller| {
        let job = NewJob::from_call(call, Timestamp::now())?;
        // A null input is the same as an omitted one.
        let input = call.datum(1).unwrap_or_else(empty_object);
        check_size("input", input)?;
        let id = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            Ok(enqueue_within(spi, &scope, &job, &[Some(input)])?[0])
        })?;
        Ok(call.value(id))
    })
});

sql_function!(trax_enqueue_many, pg_finfo_trax_enqueue_many, |call| {
    as_owner(call, |caller| {
        let job = NewJob::from_call(call, Timestamp::now())?;
        let inputs = call
            .datum(1)
            .ok_or_else(|| Error::null_argument("inputs"))?;
        let inputs = array_elements(pg_sys::JSONBOID, inputs)?;
        for input in &inputs {
            let input = input.ok_or_else(|| Error::null_argument("inputs"))?;
            check_size("input", input)?;
        }
        if inputs.len() > 1 && job.unique_key.is_some() {
            return Err(Error::invalid("argument \"unique_key\" must be omitted for several inputs")
                .detail("The first input would have the key, and the others would have no job.")
                .hint("Enqueue each input with a key of its own: trax.enqueue(task, input, unique_key => ...)"));
        }
        let mut rows = call.rows();
        if !inputs.is_empty() {
            let ids = spi::connected(|spi| {
                let scope = access_scope::of_caller(spi, caller);
                enqueue_within(spi, &scope, &job, &inputs)
            })?;
            for id in ids {
                rows.push(&[arg(id)]);
            }
        }
        Ok(rows.end())
    })
});

sql_function!(trax_run_now, pg_finfo_trax_run_now, |call| {
    as_owner(call, |caller| {
        let job_id = call.required::<i64>(0, "job_id")?;
        let state = spi::connected(|spi| {
            let state = hasten(spi, job_id, Timestamp::now());
            access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
            Ok(state)
        })?;
        Ok(call.value(state))
    })
});

sql_function!(
    trax_limit_queue_time,
    pg_finfo_trax_limit_queue_time,
    |call| {
        as_owner(call, |caller| {
            let job_id = call.required::<i64>(0, "job_id")?;
            let limit = call.optional_positive(1, "time_limit")?;
            wake::mark(wake::DUE);
            let limited = spi::connected(|spi| {
                let limited = spi.execute(QueueLimit {
                    job_id: arg(job_id),
                    now: arg(Timestamp::now()),
                    micros: limit.and_then(arg),
                }) > 0;
                access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
                Ok(limited)
            })?;
            Ok(call.value(limited))
        })
    }
);

/// Returns an error for the task of SQL jobs: only a function that knows its role queues a
/// statement.
pub(crate) fn refuse_sql_task(task: &str) -> Result<()> {
    if task != SQL_TASK {
        return Ok(());
    }
    Err(Error::invalid("task \"sql\" is that of SQL jobs")
        .detail("A job with this task is a statement that the server runs.")
        .hint("Queue a statement with: select trax.enqueue_sql('...'); or give the task another name."))
}

/// Does the same as [`enqueue`] for a caller who may queue jobs of this task in this group, and
/// adds the new jobs to their batch.
pub(crate) fn enqueue_within(
    spi: &Spi,
    scope: &Scope,
    job: &NewJob,
    inputs: &[Option<pg_sys::Datum>],
) -> Result<Vec<i64>> {
    scope.require(&job.task, &job.group)?;
    lock_groups(std::iter::once(job));
    if let Some(batch) = job.batch {
        job_graph::keep_open(spi, scope, batch, job.parent_job_id)?;
    }
    let (ids, queued) = match &job.unique_key {
        None => insert(job, inputs),
        Some(_) => match enqueue_new(spi, scope, job, inputs[0]) {
            Ok(Placed::Queued(id)) => (vec![id], 0..1),
            Ok(placed) => return Ok(vec![placed.id(); inputs.len()]),
            Err(KeyTaken { job_id, .. }) => {
                require_keeper(spi, scope, job_id)?;
                return Ok(vec![job_id; inputs.len()]);
            }
        },
    };
    if let Some(batch) = job.batch {
        job_graph::add_to_batch(batch, &ids[queued]);
    }
    Ok(ids)
}

/// Returns an error for a limited role that may not learn the id of a job with a unique key.
pub(crate) fn require_keeper(spi: &Spi, scope: &Scope, job_id: i64) -> Result<()> {
    scope.require_job_as(spi, job_id, || {
        "the job that has this unique key".to_owned()
    })
}

/// Queues a job that no full group drops and returns its id, or that of the job that keeps its
/// unique key alive.
pub(crate) fn enqueue(spi: &Spi, job: &NewJob, input: Option<pg_sys::Datum>) -> i64 {
    match enqueue_new(spi, &Scope::default(), job, input) {
        Ok(placed) => placed.id(),
        Err(KeyTaken { job_id, .. }) => job_id,
    }
}

/// Queues one job, or makes it of the waiting job that has its unique key, unless that stays as it
/// is.
pub(crate) fn enqueue_new(
    spi: &Spi,
    scope: &Scope,
    job: &NewJob,
    input: Option<pg_sys::Datum>,
) -> std::result::Result<Placed, KeyTaken> {
    match &job.unique_key {
        Some(key) => enqueue_unique(spi, scope, job, key, None, input),
        None => {
            let (ids, queued) = insert(job, &[input]);
            Ok(Placed::new(ids[0], !queued.is_empty()))
        }
    }
}

/// Queues a job, under `id` if that is given, if no other has its unique key, or makes it of the
/// waiting job that has the key. The loop ends when the key is found alive or is taken. In between,
/// another transaction may take or release the key, and the loop looks again.
fn enqueue_unique(
    spi: &Spi,
    scope: &Scope,
    job: &NewJob,
    key: &str,
    id: Option<i64>,
    input: Option<pg_sys::Datum>,
) -> std::result::Result<Placed, KeyTaken> {
    let mut moves = 0;
    loop {
        // The job whose key the new one takes over.
        let former = match unique_key::find(spi, key, job.now) {
            None => None,
            Some(found) if found.is_over => {
                unique_key::free_over(spi, &[key], job.now);
                None
            }
            Some(found) if found.ended && job.replaces == Some(found.job_id) => Some(found.job_id),
            Some(found) => {
                let met = rewrite::meet(spi, scope, job, key, &found, input);
                let Found { job_id, ended, .. } = found;
                match met.unwrap_or_else(|error| error.raise()) {
                    Met::Rewritten => return Ok(Placed::Rewritten(job_id)),
                    Met::Begun => Some(job_id),
                    Met::Moved if moves < LOOKS => {
                        moves += 1;
                        continue;
                    }
                    Met::Kept | Met::Moved => return Err(KeyTaken { job_id, ended }),
                }
            }
        };
        let id = id.unwrap_or_else(next_id);
        if insert_as(job, &[id], &[input]).is_empty() {
            // The full group has dropped the job: no job has the key.
            let former = former.into_iter().collect::<Vec<_>>();
            unique_key::release(spi, vec![key.to_owned(); former.len()], former, job.now);
            return Ok(Placed::Dropped(id));
        }
        let taken = match former {
            Some(former) => unique_key::pass_on(spi, former, wanted(job, key, id)),
            None => unique_key::take(spi, wanted(job, key, id)),
        };
        if taken {
            return Ok(Placed::Queued(id));
        }
        changes::taken();
        spi.execute(QueueRemove { job_id: arg(id) });
    }
}

fn wanted<'a>(job: &NewJob, key: &'a str, job_id: i64) -> Wanted<'a> {
    Wanted {
        key,
        job_id,
        alive_until: job.alive_until(),
    }
}

/// Returns an id for [`enqueue_as`].
pub(crate) fn next_id() -> i64 {
    next_ids(1)[0]
}

/// Returns ids for [`insert_each`].
pub(crate) fn next_ids(count: usize) -> Vec<i64> {
    table::next_ids(c"work_queue_job_id_seq", count)
}

/// Queues a job without a unique key under an id that [`next_id`] returned; returns false when its
/// full group has dropped it.
pub(crate) fn enqueue_as(job: &NewJob, id: i64, input: pg_sys::Datum) -> bool {
    !insert_as(job, &[id], &[Some(input)]).is_empty()
}

/// Queues a job for each input. Returns all ids, and which of them are queued.
fn insert(job: &NewJob, inputs: &[Option<pg_sys::Datum>]) -> (Vec<i64>, Range<usize>) {
    let ids = next_ids(inputs.len());
    let queued = insert_as(job, &ids, inputs);
    (ids, queued)
}

/// Adds a row for each id and input; returns for which: a full group may drop some.
fn insert_as(job: &NewJob, ids: &[i64], inputs: &[Option<pg_sys::Datum>]) -> Range<usize> {
    let queued = overflow::admit(job, ids, inputs);
    let (ids, inputs) = (&ids[queued.clone()], &inputs[queued.clone()]);
    let (lane, tasks) = (job.lane(), task::all());
    let table = Table::open(Waiting::TABLE, Waiting::ALL);
    let mut rows = Inserter::begin(&table, ids.len());
    add(&mut rows, job, tasks.of(&job.task), lane, ids, inputs);
    rows.end();
    table.close();
    queued
}

/// Adds a row for each id and input.
fn add(
    rows: &mut Inserter,
    job: &NewJob,
    defaults: Option<&Defaults>,
    lane: i64,
    ids: &[i64],
    inputs: &[Option<pg_sys::Datum>],
) {
    let delayed = job.run_at > job.now;
    let waits_for = match job.waits_for_jobs {
        true => arg("jobs"),
        false if delayed => arg("time"),
        false => None,
    };
    let rate = job.rate.as_ref();
    let own = job.or_defaults(defaults);
    let same = [
        (Waiting::LaneId, arg(lane)),
        (Waiting::QueuedAt, arg(job.now)),
        (Waiting::RunAt, arg(job.run_at)),
        (
            Waiting::ManifestId,
            job.manifest.as_ref().and_then(|(id, _)| arg(*id)),
        ),
        (Waiting::Attempts, arg(0)),
        (Waiting::MaxRetries, own.max_retries.and_then(arg)),
        (Waiting::Priority, arg(job.priority as i16)),
        (Waiting::Scheduled, arg(false)),
        (Waiting::WaitsFor, waits_for),
        (Waiting::Task, arg(job.task.as_str())),
        (Waiting::GroupName, arg(job.group.as_str())),
        (
            Waiting::Manifest,
            job.manifest
                .as_ref()
                .and_then(|(_, name)| arg(name.as_str())),
        ),
        (Waiting::Timeout, own.timeout),
        (Waiting::RetryDelay, own.retry_delay),
        (Waiting::UniqueKey, job.unique_key.as_deref().and_then(arg)),
        (
            Waiting::ConcurrencyKey,
            job.concurrency_key.as_deref().and_then(arg),
        ),
        (Waiting::Trace, job.trace),
        (Waiting::RunAs, job.run_as.as_deref().and_then(arg)),
        (Waiting::Version, job.version.as_deref().and_then(arg)),
        (Waiting::Rate, rate.and_then(|rate| arg(rate.name.as_str()))),
        (
            Waiting::RateKey,
            rate.and_then(|rate| rate.key.as_deref()).and_then(arg),
        ),
        (Waiting::Cost, rate.and_then(|rate| arg(rate.cost))),
        (Waiting::ParentJobId, job.parent_job_id.and_then(arg)),
        (
            Waiting::Steps,
            if job.steps > 0 {
                arg(job.steps as i32)
            } else {
                None
            },
        ),
    ];
    if delayed || job.waits_for_jobs {
        wake::mark(wake::DUE);
    } else if let Some(first) = ids.first() {
        changes::claimable(lane, job.priority as i16, *first);
        if job.run_as.is_some() {
            wake::mark(wake::SQL);
        }
    }
    for (id, input) in ids.iter().zip(inputs) {
        let mut row = rows.row();
        for (column, value) in same {
            row.set(column, value);
        }
        row.set(Waiting::JobId, arg(*id));
        row.set(Waiting::Input, *input);
    }
}

/// Makes delayed jobs claimable once their time has come; returns how many.
pub(crate) fn promote_delayed(spi: &Spi, now: Timestamp) -> usize {
    changes::rows_claimable(&spi.query(QueuePromote {
        now: arg(now),
        at_most: arg(PROMOTE_AT_MOST),
    }))
}

/// How often a job is searched for: it may move to another table meanwhile.
pub(crate) const LOOKS: usize = 5;

/// Makes a delayed job claimable now; returns where it is.
fn hasten(spi: &Spi, job_id: i64, now: Timestamp) -> String {
    for _ in 0..LOOKS {
        if changes::rows_claimable(&spi.query(QueueHasten {
            job_id: arg(job_id),
            now: arg(now),
        })) == 1
        {
            audit::record(spi, "run_now", Kind::Job, &job_id.to_string(), None);
            return "ready".to_owned();
        }
        if let Some(state) = spi
            .query(QueueState {
                job_id: arg(job_id),
            })
            .one()
        {
            return state;
        }
    }
    unseen::refuse_job(spi, job_id);
    "unknown".to_owned()
}

/// Returns when a delayed job or a manifest is due next, or a job has waited too long.
pub(crate) fn next_due(spi: &Spi) -> Option<Timestamp> {
    spi.query(QueueNextDue).one()
}

/// Returns an error for a value larger than `trax.max_input_bytes`, measured as stored in the
/// database. `what` names it.
pub(crate) fn check_size(what: &str, value: pg_sys::Datum) -> Result<()> {
    let (bytes, limit) = (value_bytes(value), setting::max_input_bytes());
    if bytes > limit {
        return Err(Error::too_large(format!("the {what} is too large"))
            .detail(format!("It has {bytes} bytes; the limit is {limit}."))
            .hint(
                "Store the data in a table or a file and pass its key, or raise trax.max_input_bytes.",
            ));
    }
    Ok(())
}

/// Returns the jsonb value `{}`.
pub(crate) fn empty_object() -> pg_sys::Datum {
    pgrx::datum::IntoDatum::into_datum(pgrx::JsonB(serde_json::Value::Object(Default::default())))
        .expect("an object is not null")
}
