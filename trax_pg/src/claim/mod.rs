//! Claims: waiting jobs become leases.
//!
//! Enters: the claimable rows of `trax.work_queue`. Leaves: one lease a job, with a random token.
//! Holds: a job is claimed by one transaction only; jobs come in the order of group priority, own priority, age;
//! a row that another transaction has locked is stepped over, never waited for; after a group is paused no claim
//! of its jobs commits.
//!
//! The pick is what `select ctid ... order by group priority desc, priority desc, job_id limit N for update skip
//! locked` says, over lanes: each lane is one range of the index `work_queue_ready`, already in order, and the
//! ranges are merged here row by row. The planner has no such merge for a list of lanes: it sorts everything that
//! waits. A row is locked when it is taken, not when it is looked at, so a claim hides nothing from others that it
//! does not take.
//!
//! Cost, as `explain (analyze, buffers)` tells it in the function with warm caches: a claim of 1 job touches 35 buffers
//! (lanes 5, group 2, the move 6, the rest catalog and index), of 100 jobs 808, of which 608 are the move: `Tid Scan on
//! work_queue`, then `Insert on lease`. With 1,000,000 waiting instead of 1,000 a claim of 20 touches 155 instead of 151:
//! one more level of the index. Delayed jobs, jobs of a disabled group and history are in no lane that it reads.

mod scan;

use crate::clock::{Timestamp, micros};
use crate::entry::{Call, sql_function};
use crate::error::{Error, Result};
use crate::lease::Held;
use crate::spi::{self, Spi, SpiRow, SpiRows, arg, array_arg, statement};
use crate::{group, outcome, registry, setting, wake};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use scan::QueueScan;
use std::collections::HashMap;

const MAX_JOBS: i32 = 1000;
/// Columns of a claimed job, as `trax.claim_next` gives them.
const COLUMNS: usize = 11;
/// Columns of `trax.work_queue`, by position.
const JOB_ID_COLUMN: i32 = 1;
const PRIORITY_COLUMN: i32 = 10;

statement!(LANE_LIST, "lane_list.sql", TEXTARRAYOID, TEXTARRAYOID);
statement!(CLAIM_UNPARK, "claim_unpark.sql", TEXTARRAYOID);
statement!(
    LEASE_GRANT,
    "lease_grant.sql",
    TIDARRAYOID,
    TEXTOID,
    TIMESTAMPTZOID,
    INTERVALOID,
    INTERVALOID
);

sql_function!(trax_claim_next, pg_finfo_trax_claim_next, |call| {
    spi::require_primary()?;
    let request = Request::from_call(call, 0, Timestamp::now())?;
    let mut rows = call.rows();
    spi::connected(|spi| claim(spi, &request, |job| rows.push_tuple(job.tuple())))?;
    Ok(rows.end())
});

sql_function!(
    trax_complete_and_claim,
    pg_finfo_trax_complete_and_claim,
    |call| {
        spi::require_primary()?;
        let now = Timestamp::now();
        let held = Held::from_call(call)?;
        let outputs = outcome::outputs(call, 2, held.job_ids.len())?;
        let request = Request::from_call(call, 3, now)?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            for job_id in outcome::complete(spi, &held, &outputs, now) {
                let mut row = [None; 1 + COLUMNS];
                row[0] = arg(job_id);
                rows.push(&mut row);
            }
            claim(spi, &request, |job| {
                let mut row = [None; 1 + COLUMNS];
                for (index, value) in row.iter_mut().enumerate().skip(1) {
                    *value = job.datum(index);
                }
                rows.push(&mut row);
            })
        })?;
        Ok(rows.end())
    }
);

/// What a worker asks for.
struct Request {
    worker: String,
    max_jobs: usize,
    tasks: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    lease_micros: i64,
    now: Timestamp,
}

impl Request {
    /// The arguments worker, max_jobs, tasks, groups and lease, which begin at `first`.
    fn from_call(call: &Call, first: usize, now: Timestamp) -> Result<Self> {
        let lease = call.optional_positive(first + 4, "lease")?;
        Ok(Self {
            worker: match call.optional_name(first, "worker")? {
                Some(worker) => worker,
                None => session_name(),
            },
            max_jobs: call
                .optional_within(first + 1, "max_jobs", 1, MAX_JOBS)?
                .unwrap_or(1) as usize,
            tasks: call.optional_names(first + 2, "tasks")?,
            groups: call.optional_names(first + 3, "groups")?,
            lease_micros: lease.unwrap_or_else(|| micros(setting::default_lease())),
            now,
        })
    }
}

/// Grants a lease for each of the best waiting jobs and gives their rows to `push`, in the order of claiming.
fn claim(spi: &Spi, request: &Request, mut push: impl FnMut(SpiRow)) -> Result<()> {
    let state = wake::state();
    let mut lanes = lanes(spi, request);
    let mut picked = Vec::with_capacity(request.max_jobs);
    while let Some(class) = next_class(&mut lanes) {
        pick(spi, class, request.max_jobs, &mut picked);
        if picked.len() == request.max_jobs {
            break;
        }
    }
    wake::looked(state, picked.len() < request.max_jobs);
    if picked.is_empty() {
        return Ok(());
    }
    let granted = spi.query(
        &LEASE_GRANT,
        &[
            tid_array(&picked),
            arg(request.worker.as_str()),
            arg(request.now),
            arg(interval(request.lease_micros)?),
            arg(interval(micros(setting::default_timeout()))?),
        ],
    );
    unpark_manifests(spi, &granted);
    registry::seen(spi, &request.worker, request.now);
    let by_job: HashMap<i64, usize> = granted
        .iter()
        .enumerate()
        .map(|(index, row)| (row.must(1), index))
        .collect();
    for job in &picked {
        push(granted.row(by_job[&job.job_id]));
    }
    Ok(())
}

/// Lets manifests go on that may overlap and waited for their entry to be claimed.
fn unpark_manifests(spi: &Spi, granted: &SpiRows) {
    let mut names: Vec<String> = granted.iter().filter_map(|row| row.get(6)).collect();
    if names.is_empty() {
        return;
    }
    names.sort_unstable();
    names.dedup();
    if spi.execute(&CLAIM_UNPARK, &[arg(names)]) > 0 {
        wake::mark(wake::DUE);
    }
}

struct Lane {
    id: i64,
    group_priority: i16,
    group: String,
}

fn lanes(spi: &Spi, request: &Request) -> Vec<Lane> {
    let rows = spi.query(
        &LANE_LIST,
        &[
            request.tasks.clone().and_then(arg),
            request.groups.clone().and_then(arg),
        ],
    );
    let mut lanes: Vec<Lane> = rows
        .iter()
        .map(|row| Lane {
            id: row.must(1),
            group_priority: row.must(2),
            group: row.must(3),
        })
        .collect();
    lanes.sort_by_key(|lane| (lane.group_priority, lane.id));
    // The same lane may be registered twice.
    lanes.dedup_by_key(|lane| lane.id);
    lanes
}

/// Splits off the lanes of the highest group priority that is left.
fn next_class(lanes: &mut Vec<Lane>) -> Option<Vec<Lane>> {
    let highest = lanes.last()?.group_priority;
    let start = lanes.partition_point(|lane| lane.group_priority < highest);
    Some(lanes.split_off(start))
}

/// A waiting row that this transaction has locked.
struct Picked {
    job_id: i64,
    tid: pg_sys::ItemPointerData,
}

/// Locks the best rows of lanes whose groups have one priority, until `max_jobs` are picked in all.
fn pick(spi: &Spi, class: Vec<Lane>, max_jobs: usize, picked: &mut Vec<Picked>) {
    let mut admitted: HashMap<&str, bool> = HashMap::new();
    let queue = QueueScan::open();
    let mut heads = queue.heads(&class);
    while picked.len() < max_jobs {
        let Some(mut head) = heads.pop() else { break };
        let group = head.lane.group.as_str();
        if !*admitted
            .entry(group)
            .or_insert_with(|| group::admits_claim(spi, group))
        {
            head.end();
            continue;
        }
        let job_id = head.key.job_id;
        let Some(cursor) = head.cursor(&queue) else {
            continue;
        };
        if queue.lock(cursor) {
            let tid = cursor.tid();
            picked.push(Picked { job_id, tid });
        }
        if head.advance() {
            heads.push(head);
        } else {
            head.end();
        }
    }
    for head in heads {
        head.end();
    }
    queue.close();
}

fn tid_array(picked: &[Picked]) -> Option<pg_sys::Datum> {
    let datums: Vec<Option<pg_sys::Datum>> = picked
        .iter()
        .map(|job| Some(pg_sys::Datum::from(&raw const job.tid)))
        .collect();
    array_arg(pg_sys::TIDOID, &datums)
}

/// An interval of so many microseconds.
pub(crate) fn interval(micros: i64) -> Result<Interval> {
    Interval::new(0, 0, micros)
        .map_err(|_| Error::invalid(format!("{micros} microseconds is too long an interval")))
}

/// How a session is called that does not name its worker: application name and process id.
fn session_name() -> String {
    let application = application_name();
    let application = if application.is_empty() {
        "session"
    } else {
        application.as_str()
    };
    // SAFETY: a plain number of this backend.
    let process = unsafe { pg_sys::MyProcPid };
    format!("{application}:{process}")
}

/// The application name of this session.
pub(crate) fn application_name() -> String {
    // SAFETY: a C string of this backend, or null.
    unsafe {
        if pg_sys::application_name.is_null() {
            return String::new();
        }
        std::ffi::CStr::from_ptr(pg_sys::application_name)
            .to_string_lossy()
            .into_owned()
    }
}
