//! Full groups: how many jobs of producers may wait in a group with `max_waiting`, and what happens
//! to those beyond (`overflow`).
//!
//! Words: a job is *admitted* by a row of `trax.admission`, which stays behind when the job is
//! claimed, until a call that finds the group full looks again. Enters: the jobs of one call.
//! Leaves: the part of them that is queued; the jobs that are dropped, older ones or new ones, as
//! cancelled runs with the reason. Holds: calls that queue into such a group run one after the
//! other, commit by commit, and each counts what waits as committed; so never more admitted jobs
//! wait than `max_waiting` at any commit. Retries, jobs of manifests, requeued dead letters, jobs
//! that undo steps, jobs that move into the group, the jobs of a document of a graph and the job of
//! a batch are not admitted, and come on top. A new job that is dropped is of no batch.
//!
//! Cost: a look at a map for other groups; in such a group two probes of an index, and 100 more
//! when the numbers of the admitted jobs reach the limit. Only a group that stays full reads all
//! its rows.

use super::new_job::NewJob;
use crate::columns::Outcome;
use crate::error::Error;
use crate::job_needs::End;
use crate::memory::left::{Left, Name};
use crate::metrics;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::quote::literal;
use crate::server::spi;
use crate::server::spi::{Spi, arg, array_arg, row, statement};
use crate::server::watched::{Cache, GROUPS};
use crate::unique_key;
use crate::{changes, job_needs, wake};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

/// How many of the oldest admitted jobs a call looks at before it looks at all.
const OLDEST: i64 = 100;

row! {
    /// A group with a limit of waiting jobs.
    struct Limited {
        name: String,
        max_waiting: i32,
        overflow: String,
    }
}
row! {
    /// The first and the last number of the admitted jobs of a group.
    struct Numbers {
        first: i64,
        last: i64,
    }
}
row! {
    /// A waiting job that was dropped.
    struct Dropped {
        job_id: i64,
        task: String,
        unique_key: Option<String>,
        concurrency_key: Option<String>,
        parent_job_id: Option<i64>,
        /// Its lane, if a rate is that of the lane.
        rate_lane: Option<i64>,
    }
}
statement!(LimitedGroups, "work_queue/limited_groups.sql" -> Limited);
statement!(AdmissionNumbers, "work_queue/admission_numbers.sql", { group: TEXTOID } -> Numbers);
statement!(
    AdmissionForget, "work_queue/admission_forget.sql",
    { group: TEXTOID, at_most: INT8OID }
);
statement!(AdmissionCount, "work_queue/admission_count.sql", { group: TEXTOID } -> i64);
statement!(
    AdmissionAdd, "work_queue/admission_add.sql",
    { group: TEXTOID, job_ids: INT8ARRAYOID, last: INT8OID }
);
statement!(
    DropOldest, "work_queue/drop_oldest.sql",
    { group: TEXTOID, count: INT8OID, reason: TEXTOID, now: TIMESTAMPTZOID } -> Dropped
);
statement!(
    DropNew, "work_queue/drop_new.sql",
    {
        job_ids: INT8ARRAYOID,
        inputs: JSONBARRAYOID,
        run_at: TIMESTAMPTZOID,
        priority: INT2OID,
        task: TEXTOID,
        group: TEXTOID,
        parent_job_id: INT8OID,
        version: TEXTOID,
        rate: TEXTOID,
        rate_key: TEXTOID,
        cost: INT4OID,
        max_retries: INT4OID,
        timeout: INTERVALOID,
        retry_delay: INTERVALOID,
        concurrency_key: TEXTOID,
        trace: JSONBOID,
        reason: TEXTOID,
        now: TIMESTAMPTZOID,
    }
);

/// The groups with a limit of waiting jobs, by name.
type Groups = HashMap<String, Limited>;

thread_local! {
    static CACHED: Cache<Groups> = const { Cache::new(None) };
}

/// Returns the groups with a limit of waiting jobs, as committed now.
fn groups() -> Rc<Groups> {
    GROUPS.rows(&CACHED, |spi| {
        let rows = spi.query_latest(LimitedGroups);
        rows.iter().map(|one| (one.name.clone(), one)).collect()
    })
}

/// Locks the groups with a limit of jobs that are queued together, in the order that all calls
/// share: a call does this before it locks anything else.
pub(crate) fn lock_all<'a>(jobs: impl Iterator<Item = &'a NewJob>) {
    let limited = groups();
    if limited.is_empty() {
        return;
    }
    let names: BTreeSet<&str> = jobs
        .filter(|job| job.is_admitted && limited.contains_key(&job.group))
        .map(|job| job.group.as_str())
        .collect();
    for name in names {
        Lock::Waiting(name).take(Mode::Alone);
    }
}

/// Returns which of the new jobs are queued. Records those that are dropped, new ones or older
/// ones; raises 53400 if the group refuses them.
pub(super) fn admit(job: &NewJob, ids: &[i64], inputs: &[Option<pg_sys::Datum>]) -> Range<usize> {
    if !job.is_admitted {
        return 0..ids.len();
    }
    if !groups().contains_key(&job.group) {
        return 0..ids.len();
    }
    Lock::Waiting(&job.group).take(Mode::Alone);
    // The limit may have changed while this call waited.
    let limited = groups();
    let Some(group) = limited.get(&job.group) else {
        return 0..ids.len();
    };
    let admitted = spi::connected_anyhow(|spi| Ok(admit_into(spi, group, job, ids, inputs)));
    admitted.unwrap_or_else(|error| error.raise())
}

fn admit_into(
    spi: &Spi,
    group: &Limited,
    job: &NewJob,
    ids: &[i64],
    inputs: &[Option<pg_sys::Datum>],
) -> Range<usize> {
    let (count, limit) = (ids.len(), i64::from(group.max_waiting));
    let (room, last) = room(spi, group, count as i64);
    let fits = room.clamp(0, count as i64) as usize;
    let queued = match group.overflow.as_str() {
        _ if fits == count => 0..count,
        "drop_newest" => 0..fits,
        "drop_oldest" => {
            // The oldest of the new ones are dropped if even all older ones do not suffice.
            let wanted = limit.min(count as i64);
            let dropped = drop_oldest(spi, group, wanted - room, job.now);
            let fits = (room + dropped as i64).clamp(0, wanted);
            count - fits as usize..count
        }
        _ => refuse(group, count, limit - room),
    };
    let left: Vec<usize> = (0..count).filter(|at| !queued.contains(at)).collect();
    drop_new(spi, group, job, ids, inputs, &left);
    spi.change_latest(AdmissionAdd {
        group: arg(group.name.as_str()),
        job_ids: arg(ids[queued.clone()].to_vec()),
        last: arg(last),
    });
    queued
}

/// Returns how many more jobs may wait in a group, at least `wanted` or exactly, below 0 after the
/// limit was lowered; and the last number of an admitted job.
fn room(spi: &Spi, group: &Limited, wanted: i64) -> (i64, i64) {
    let name = || arg(group.name.as_str());
    let limit = i64::from(group.max_waiting);
    let numbers = || {
        let numbers = spi.query_latest(AdmissionNumbers { group: name() });
        numbers.first().unwrap_or(Numbers { first: 1, last: 0 })
    };
    let before = numbers();
    for at_most in [0, OLDEST, i64::MAX] {
        if at_most > 0 {
            spi.change_latest(AdmissionForget {
                group: name(),
                at_most: arg(at_most),
            });
        }
        let now = numbers();
        // Numbers of jobs that wait no more may lie between.
        let room = limit - (now.last - now.first + 1);
        if room >= wanted {
            return (room, before.last);
        }
    }
    let count = spi.query_latest(AdmissionCount { group: name() }).one();
    (limit - count, before.last)
}

fn refuse(group: &Limited, count: usize, waiting: i64) -> ! {
    let Limited {
        name, max_waiting, ..
    } = group;
    let more = match count {
        1 => "the call would add another".to_owned(),
        more => format!("the call would add {more}"),
    };
    Error::new(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        format!("group \"{name}\" is full"),
    )
    .detail(format!(
        "It may have {max_waiting} waiting jobs and has {waiting}; {more}."
    ))
    .hint(format!(
        "Enqueue later, or let more wait: select trax.configure_group({}, max_waiting => {})",
        literal(name),
        (2 * i64::from(*max_waiting))
            .max(waiting + count as i64)
            .min(i32::MAX.into())
    ))
    .raise()
}

fn reason(group: &Limited) -> String {
    format!(
        "dropped: group \"{}\" may have {} waiting jobs ({})",
        group.name, group.max_waiting, group.overflow
    )
}

/// Drops the oldest admitted jobs that wait and have not begun; returns how many. Jobs that another
/// transaction has locked are skipped: most are being claimed.
fn drop_oldest(spi: &Spi, group: &Limited, count: i64, now: Timestamp) -> usize {
    if count == 0 {
        return 0;
    }
    changes::taken();
    let dropped: Vec<Dropped> = spi
        .change_latest(DropOldest {
            group: arg(group.name.as_str()),
            count: arg(count),
            reason: arg(reason(group)),
            now: arg(now),
        })
        .iter()
        .collect();
    metrics::ended_waiting(&dropped, |job| &job.task, Outcome::Cancelled);
    changes::lanes_left(dropped.iter().filter_map(|job| job.rate_lane));
    changes::jobs_ended(dropped.iter().map(|job| job.job_id));
    let (keys, owners): (Vec<String>, Vec<i64>) = dropped
        .iter()
        .filter_map(|job| job.unique_key.clone().map(|key| (key, job.job_id)))
        .unzip();
    unique_key::release(spi, keys, owners, now);
    let ends = dropped.iter().map(|job| End {
        job_id: job.job_id,
        has_parent: job.parent_job_id.is_some(),
        has_unique_key: job.unique_key.is_some(),
    });
    job_needs::ended(&ends.collect::<Vec<End>>());
    // The next cycle lets in the jobs behind their keys.
    for key in dropped
        .iter()
        .filter_map(|job| job.concurrency_key.as_deref())
    {
        if let Some(key) = Name::of(key) {
            changes::left(Left::Key(key), 1);
            wake::mark(wake::DUE);
        }
    }
    dropped.len()
}

/// Records new jobs that are not queued.
fn drop_new(
    spi: &Spi,
    group: &Limited,
    job: &NewJob,
    ids: &[i64],
    inputs: &[Option<pg_sys::Datum>],
    dropped: &[usize],
) {
    if dropped.is_empty() {
        return;
    }
    let rate = job.rate.as_ref();
    let ids: Vec<i64> = dropped.iter().map(|&at| ids[at]).collect();
    let inputs: Vec<_> = dropped.iter().map(|&at| inputs[at]).collect();
    spi.execute(DropNew {
        job_ids: arg(ids),
        inputs: array_arg(pg_sys::JSONBOID, &inputs),
        run_at: arg(job.run_at),
        priority: arg(job.priority as i16),
        task: arg(job.task.as_str()),
        group: arg(group.name.as_str()),
        parent_job_id: job.parent_job_id.and_then(arg),
        version: job.version.as_deref().and_then(arg),
        rate: rate.and_then(|rate| arg(rate.name.as_str())),
        rate_key: rate.and_then(|rate| rate.key.as_deref()).and_then(arg),
        cost: rate.and_then(|rate| arg(rate.cost)),
        max_retries: job.max_retries.and_then(arg),
        timeout: job.timeout,
        retry_delay: job.retry_delay,
        concurrency_key: job.concurrency_key.as_deref().and_then(arg),
        trace: job.trace,
        reason: arg(reason(group)),
        now: arg(job.now),
    });
    let tasks = vec![job.task.as_str(); dropped.len()];
    metrics::ended_waiting(&tasks, |task| task, Outcome::Cancelled);
}
