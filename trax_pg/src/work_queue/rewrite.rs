//! Changes of waiting jobs: by a call that has the same unique key (`on_duplicate`), and by
//! `trax.change_job`.
//!
//! Words: a job has *begun* when it is executed, is suspended, or has recorded steps, which belong
//! to its input. Enters: a job id, and new values. Leaves: the row of the same job, in the lane of
//! its new names. Holds: the row is locked before anything is decided, so no claim takes the job
//! meanwhile, and a second change waits for the first; id, age, attempts and unique key stay.
//!
//! A call with the key of a job that has begun does not change that job, whose input may have been
//! read. It takes the key over for a new job, unless the period of the key (`unique_for`) is not
//! over: an index that is written from a table would otherwise miss the change that the call
//! reports.

use super::new_job::{NewJob, OnDuplicate};
use super::{LOOKS, QueueState, check_size, wanted};
use crate::access_scope;
use crate::access_scope::Scope;
use crate::audit;
use crate::audit::Kind;
use crate::columns::{HIGHEST_PRIORITY, SQL_TASK};
use crate::error::{Error, Result};
use crate::lane;
use crate::memory::left::{Left, Name};
use crate::rate;
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::rights::{Caller, as_owner};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::stored_settings::{Difference, StoredSettings};
use crate::unique_key;
use crate::unique_key::Found;
use crate::{changes, task, unseen, wake};
use pgrx::pg_sys;

row! {
    /// A waiting job that this transaction has locked.
    struct Held {
        task: String,
        group_name: String,
        run_as: Option<String>,
        version: Option<String>,
        priority: i16,
        run_at: Timestamp,
        waits_for: Option<String>,
        has_begun: bool,
        lane_id: i64,
        concurrency_key: Option<String>,
        rate: Option<String>,
        rate_key: Option<String>,
        cost: Option<i32>,
        manifest_id: Option<i64>,
        manifest: Option<String>,
    }
}
statement!(
    QueueHold, "work_queue/hold.sql",
    { job_id: INT8OID, unique_key: TEXTOID } -> Held
);
statement!(
    QueueRewrite, "work_queue/rewrite.sql",
    {
        job_id: INT8OID,
        lane_id: INT8OID,
        waits_for: TEXTOID,
        run_at: TIMESTAMPTZOID,
        group: TEXTOID,
        priority: INT2OID,
        input: JSONBOID,
        max_retries: INT4OID,
        timeout: INTERVALOID,
        retry_delay: INTERVALOID,
        concurrency_key: TEXTOID,
        trace: JSONBOID,
        version: TEXTOID,
        run_as: TEXTOID,
        rate: TEXTOID,
        rate_key: TEXTOID,
        cost: INT4OID,
        replaces: BOOLOID,
    }
);

sql_function!(trax_change_job, pg_finfo_trax_change_job, |call| {
    as_owner(call, |caller| {
        spi::require_primary()?;
        let job_id = call.required::<i64>(0, "job_id")?;
        let change = Change::from_call(call)?;
        let result = spi::connected(|spi| change_job(spi, caller, job_id, &change))?;
        Ok(call.value(result))
    })
});

/// New values of a waiting job; `None` keeps the stored one.
struct Change {
    input: Option<pg_sys::Datum>,
    run_at: Option<Timestamp>,
    priority: Option<i16>,
    group: Option<String>,
    max_retries: Option<i32>,
    timeout: Option<pg_sys::Datum>,
    /// The options that `trax.change_job` does not have, of a call that replaces all.
    others: Option<Others>,
}

struct Others {
    retry_delay: Option<pg_sys::Datum>,
    concurrency_key: Option<String>,
    trace: Option<pg_sys::Datum>,
    version: Option<String>,
    run_as: Option<String>,
    rate: Option<rate::OfJob>,
}

impl Change {
    /// Returns the arguments of `trax.change_job` after the first.
    fn from_call(call: &Call) -> Result<Self> {
        let input = call.datum(1);
        input.map_or(Ok(()), |input| check_size("input", input))?;
        let run_at = NewJob::finite_time(call, 2)?;
        call.optional_positive(6, "timeout")?;
        let priority = call.optional_within(3, "priority", 0, HIGHEST_PRIORITY)?;
        let change = Self {
            input,
            run_at,
            priority: priority.map(|priority| priority as i16),
            group: call.optional_new_name(4, "group_name")?,
            max_retries: call.optional_within(5, "max_retries", 0, i32::MAX - 1)?,
            timeout: call.datum(6),
            others: None,
        };
        if (1..=6).all(|index| call.datum(index).is_none()) {
            return Err(Error::invalid("there is nothing to change")
                .detail("All arguments after job_id are null or left out.")
                .hint("Specify a new value, for example: priority => 10"));
        }
        Ok(change)
    }

    /// Returns the values of a new job, for the job that has its unique key.
    fn of(job: &NewJob, input: Option<pg_sys::Datum>) -> Self {
        let own = job.or_defaults(task::all().of(&job.task));
        Self {
            input,
            run_at: (job.on_duplicate == OnDuplicate::Postpone).then_some(job.run_at),
            priority: Some(job.priority as i16),
            group: Some(job.group.clone()),
            max_retries: own.max_retries,
            timeout: own.timeout,
            others: Some(Others {
                retry_delay: own.retry_delay,
                concurrency_key: job.concurrency_key.clone(),
                trace: job.trace,
                version: job.version.clone(),
                run_as: job.run_as.clone(),
                rate: job.rate.clone(),
            }),
        }
    }
}

fn hold(spi: &Spi, job_id: i64, unique_key: Option<&str>) -> Option<Held> {
    spi.change_latest(QueueHold {
        job_id: arg(job_id),
        unique_key: unique_key.and_then(arg),
    })
    .first()
}

/// Changes a waiting job; returns what became of the call.
fn change_job(spi: &Spi, caller: Caller, job_id: i64, change: &Change) -> Result<String> {
    let scope = access_scope::of_caller(spi, caller);
    for _ in 0..LOOKS {
        if let Some(held) = hold(spi, job_id, None) {
            scope.require_of(&held.task, &held.group_name, || format!("job {job_id}"))?;
            if change.input.is_some() && held.task == SQL_TASK {
                return Err(statement_stays(job_id));
            }
            if let Some(group) = &change.group {
                scope.require(&held.task, group)?;
                held.require_group(job_id, group)?;
            }
            let is_suspended =
                held.has_begun && matches!(held.waits_for.as_deref(), Some("signal" | "jobs"));
            if is_suspended && change.run_at.is_some() {
                return Ok("suspended".to_owned());
            }
            let before = StoredSettings::of_job(spi, job_id);
            rewrite(spi, job_id, held, change, Timestamp::now());
            let difference = before.difference(&StoredSettings::of_job(spi, job_id));
            record(spi, job_id, difference, change.input.is_some());
            return Ok("changed".to_owned());
        }
        let state = spi.query(QueueState {
            job_id: arg(job_id),
        });
        match state.one() {
            // The job has come back to the queue since.
            Some(state) if state == "ready" || state == "blocked" => {}
            Some(state) => {
                scope.require_job(spi, job_id)?;
                return Ok(state);
            }
            None => {}
        }
    }
    unseen::refuse_job(spi, job_id);
    Ok("unknown".to_owned())
}

/// Returns the error for a new input of a SQL job.
fn statement_stays(job_id: i64) -> Error {
    Error::wrong_state(format!("job {job_id} is a statement"))
        .detail("The input of a SQL job has its statement and the role that runs it.")
        .hint(format!(
            "Cancel it and queue another: select trax.cancel({job_id}); select trax.enqueue_sql('...')"
        ))
}

fn record(spi: &Spi, job_id: i64, difference: Difference, has_input: bool) {
    let changed = match difference {
        Difference::Changed(changed) => Some(changed),
        Difference::Created | Difference::None => None,
    };
    let input = has_input.then(|| "input".to_owned());
    let notes: Vec<String> = changed.into_iter().chain(input).collect();
    if !notes.is_empty() {
        let (name, note) = (job_id.to_string(), notes.join(", "));
        audit::record(spi, "change", Kind::Job, &name, Some(&note));
    }
}

/// What a call has found of the job that keeps its unique key alive.
pub(super) enum Met {
    /// The job stays as it is.
    Kept,
    Rewritten,
    /// The job has begun, and has given its key up.
    Begun,
    /// The job has moved meanwhile.
    Moved,
}

/// Applies `on_duplicate` of a new job to the living job that has its key.
pub(super) fn meet(
    spi: &Spi,
    scope: &Scope,
    job: &NewJob,
    key: &str,
    found: &Found,
    input: Option<pg_sys::Datum>,
) -> Result<Met> {
    let job_id = found.job_id;
    if job.on_duplicate == OnDuplicate::Keep || found.ended {
        return Ok(Met::Kept);
    }
    // Before any lock is waited for; the job's task does not change.
    let whose = || "the job that has this unique key".to_owned();
    scope.require_job_as(spi, job_id, whose)?;
    if let Some(held) = hold(spi, job_id, Some(key)) {
        scope.require_of(&held.task, &held.group_name, whose)?;
        held.require_task(&job.task, key)?;
        if !held.has_begun {
            held.require_group(job_id, &job.group)?;
            rewrite(spi, job_id, held, &Change::of(job, input), job.now);
            unique_key::prolong(spi, wanted(job, key, job_id));
            return Ok(Met::Rewritten);
        }
    }
    if found.is_in_period {
        return Ok(Met::Kept);
    }
    Ok(match unique_key::give_up(spi, key, job_id) {
        true => Met::Begun,
        false => Met::Moved,
    })
}

impl Held {
    fn rate(&self) -> Option<rate::OfJob> {
        rate::OfJob::stored(self.rate.clone(), self.rate_key.clone(), self.cost)
    }

    /// Returns an error for a call with another task: its input is for other code.
    fn require_task(&self, task: &str, key: &str) -> Result<()> {
        if self.task == task {
            return Ok(());
        }
        Err(Error::wrong_state(format!(
            "unique key \"{key}\" is that of a job of task \"{}\"",
            self.task
        ))
        .detail(format!(
            "The call would make a job of task \"{task}\" of it."
        ))
        .hint("Give each task keys of its own, for example: unique_key => 'search.index 7'"))
    }

    /// Returns an error for another group than that of the job's manifest: the limits and the
    /// switch of a manifest are those of its group.
    fn require_group(&self, job_id: i64, group: &str) -> Result<()> {
        match &self.manifest {
            Some(manifest) if self.group_name != group => Err(Error::wrong_state(format!(
                "job {job_id} belongs to manifest \"{manifest}\""
            ))
            .detail("A job of a manifest stays in the group that the manifest had.")
            .hint("Change the group of the manifest, for its next jobs: select trax.schedule(name, group_name => ...)")),
            _ => Ok(()),
        }
    }

    /// Returns what the changed job waits for. A blocked job that leaves its lane becomes ready
    /// there, and the next claim blocks it again if its key or manifest has no room.
    fn waits_for(
        &self,
        lane: i64,
        key: &Option<String>,
        run_at: Timestamp,
        now: Timestamp,
    ) -> Option<&'static str> {
        match self.waits_for.as_deref() {
            Some("signal") => Some("signal"),
            Some("jobs") => Some("jobs"),
            _ if run_at > now => Some("time"),
            Some("key") if lane == self.lane_id && *key == self.concurrency_key => Some("key"),
            Some("manifest") if lane == self.lane_id => Some("manifest"),
            _ => None,
        }
    }
}

/// Writes the new values of a job that is locked.
fn rewrite(spi: &Spi, job_id: i64, held: Held, change: &Change, now: Timestamp) {
    let others = change.others.as_ref();
    let group = change.group.as_deref().unwrap_or(&held.group_name);
    let priority = change.priority.unwrap_or(held.priority);
    let run_at = change.run_at.map_or(held.run_at, |run_at| run_at.max(now));
    let version = others.map_or(&held.version, |others| &others.version);
    let key = others.map_or(&held.concurrency_key, |others| &others.concurrency_key);
    let run_as = others.map_or(&held.run_as, |others| &others.run_as);
    let rate = others.map_or_else(|| held.rate(), |others| others.rate.clone());
    let rate_names = rate.as_ref().map(rate::OfJob::names);
    let (part, role) = (version.as_deref(), run_as.as_deref());
    let lane = lane::of(group, &held.task, role, part, rate_names);
    let waits_for = held.waits_for(lane, key, run_at, now);
    changes::taken();
    spi.change_latest(QueueRewrite {
        job_id: arg(job_id),
        lane_id: arg(lane),
        waits_for: waits_for.and_then(arg),
        run_at: arg(run_at),
        group: arg(group),
        priority: arg(priority),
        input: change.input,
        max_retries: change.max_retries.and_then(arg),
        timeout: change.timeout,
        retry_delay: others.and_then(|others| others.retry_delay),
        concurrency_key: key.as_deref().and_then(arg),
        trace: others.and_then(|others| others.trace),
        version: part.and_then(arg),
        run_as: role.and_then(arg),
        rate: rate.as_ref().and_then(|rate| arg(rate.name.as_str())),
        rate_key: rate
            .as_ref()
            .and_then(|rate| rate.key.as_deref())
            .and_then(arg),
        cost: rate.as_ref().and_then(|rate| arg(rate.cost)),
        replaces: arg(others.is_some()),
    });
    match waits_for {
        None => {
            changes::claimable(lane, priority, job_id);
            if run_as.is_some() {
                wake::mark(wake::SQL);
            }
        }
        Some("time") => wake::mark(wake::DUE),
        Some(_) => {}
    }
    let left_rate = held.rate.is_some() && held.waits_for.is_none();
    changes::lanes_left(left_rate.then_some(held.lane_id).into_iter());
    let has_left = lane != held.lane_id || waits_for.is_some() || *key != held.concurrency_key;
    if held.waits_for.is_none() && has_left {
        let_next_in(&held);
    }
}

/// Lets in the next jobs behind the key and the manifest of a job that has left its lane: it may
/// have been the one that was unblocked last. The next cycle does it, after the commit.
fn let_next_in(held: &Held) {
    let key = held.concurrency_key.as_deref().and_then(Name::of);
    let manifest = held.manifest_id.map(Left::Manifest);
    for left in key.map(Left::Key).into_iter().chain(manifest) {
        changes::left(left, 1);
        wake::mark(wake::DUE);
    }
}
