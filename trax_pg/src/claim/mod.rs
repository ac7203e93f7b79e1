//! Claims: waiting jobs become leases.
//!
//! Enters: the claimable rows of `trax.work_queue`. Leaves: one lease per job, with a random token.
//! Holds: a job is claimed by one transaction only; jobs are claimed in the order of group
//! priority, own priority, age; a row that another transaction has locked, or has taken since the
//! snapshot, is skipped, never waited for; after the pause of a group has committed, no claim of
//! its jobs commits. For this the pause waits for the claims that hold a lock on the group, and a
//! claim skips a group whose pause has begun.
//!
//! A claim selects the rows of `select ctid ... order by group priority desc, priority desc, job_id
//! limit N for update skip locked`, but merges lanes itself: each priority of a lane is one range
//! of the index `work_queue_ready`, already in order. The planner has no such merge for a list of
//! lanes: it sorts everything that waits. A row is deleted when it is taken, and is not locked when
//! it is read, so a claim hides from others only the rows that it takes.
//!
//! The files in the order of a claim: `lane` has the lanes that it may take jobs from, `scan` reads
//! their best rows, `enough` waits for many, `pick` takes rows under all limits, `grant` writes the
//! leases.
//!
//! Cost, as `explain (analyze, buffers)` reports it for the call with warm caches and the library
//! preloaded: a claim of 1 job touches 9 buffers, of 100 jobs 316, with any number of lanes that
//! have waiting jobs or ever had. Without preloading each claim also reads all sections from the
//! index. Delayed jobs, jobs of a disabled group and history are in no lane that it reads.

mod claim_order;
mod enough;
mod front;
mod grant;
mod lane;
mod pick;
mod scan;
mod sections;
mod sql;
mod wait;

use crate::access_scope;
use crate::access_scope::Scope;
use crate::changes;
use crate::columns::Waiting;
use crate::error::Result;
use crate::lease::Held;
use crate::limit;
use crate::limit::{Blocked, Counter, Room, Shared, group};
use crate::memory::left::Left;
use crate::memory::{Bound, RateGates};
use crate::rate::Rates;
use crate::server::backend::session_name;
use crate::server::call::{Call, sql_function};
use crate::server::clock::{Timestamp, micros};
use crate::server::durability;
use crate::server::rights::{Caller, as_owner};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::Row;
use crate::unreadable_job;
use crate::unreadable_job::Unreadable;
use crate::wake::Searched;
use crate::{instance, metrics, outcome, setting, wake, worker_registry};
use lane::List;
use pgrx::pg_sys;
pub(crate) use sections::repair;
pub(crate) use sql::{COMMAND, ROLE_OID, SqlJob, sql_job};
use std::collections::HashMap;

const MAX_JOBS: i32 = 1000;
/// Most jobs that one claim takes out of their lanes because their key or manifest has no room.
const BLOCK_AT_MOST: usize = 2000;
/// Number of unreadable jobs after which a claim stops.
const UNREADABLE_AT_MOST: usize = 100;
/// Number of jobs of a key that cost more than the burst of their rate that a claim passes.
const ABOVE_BURST_AT_MOST: usize = 100;
/// Columns of a claimed job, as `trax.claim_next` returns them.
const COLUMNS: usize = 14;

row! {
    /// A manifest that allows overlap.
    struct Overlapping {
        manifest_id: i64,
        is_unparked: bool,
    }
}
statement!(ClaimUnpark, "claim/unpark.sql", { manifest_ids: INT8ARRAYOID } -> Overlapping);
row! {
    /// A task in a group.
    struct Lane {
        task: String,
        group_name: String,
    }
}
statement!(WaitingTasks, "claim/waiting_tasks.sql", { groups: TEXTARRAYOID } -> Lane);

sql_function!(trax_waiting_tasks, pg_finfo_trax_waiting_tasks, |call| {
    as_owner(call, |caller| {
        let groups = call.filter(0, "groups")?;
        let mut rows = call.rows();
        let mut tasks: Vec<String> = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            let lanes = spi.query(WaitingTasks {
                groups: groups.and_then(arg),
            });
            let mine = lanes
                .iter()
                .filter(|lane| scope.allows(&lane.task, &lane.group_name));
            Ok(mine.map(|lane| lane.task).collect())
        })?;
        tasks.dedup();
        for task in tasks {
            rows.push(&[arg(task)]);
        }
        Ok(rows.end())
    })
});

sql_function!(trax_claim_next, pg_finfo_trax_claim_next, |call| {
    as_owner(call, |caller| {
        spi::require_primary()?;
        let mut request = Request::from_call(call, 0)?;
        let untouched = durability::is_untouched();
        let mut rows = call.rows();
        let claimed = spi::connected(|spi| {
            instance::require_adopted(spi)?;
            request.narrow(spi, caller)?;
            claim(spi, &request, |job| rows.push(job))
        })?;
        commit_as_claimed(untouched, claimed);
        Ok(rows.end())
    })
});

sql_function!(
    trax_complete_and_claim,
    pg_finfo_trax_complete_and_claim,
    |call| {
        as_owner(call, |caller| {
            spi::require_primary()?;
            let now = Timestamp::now();
            let held = Held::from_call(call)?;
            let outputs = outcome::outputs(call, 2, held.job_ids.len())?;
            let mut request = Request::from_call(call, 3)?;
            let untouched = durability::is_untouched() && held.job_ids.is_empty();
            let mut rows = call.rows();
            let claimed = spi::connected(|spi| {
                instance::require_adopted(spi)?;
                request.narrow(spi, caller)?;
                for job_id in outcome::complete(spi, &held, &outputs, now)? {
                    let mut row = [None; 1 + COLUMNS];
                    row[0] = arg(job_id);
                    rows.push(&row);
                }
                claim(spi, &request, |job| {
                    let mut row = [None; 1 + COLUMNS];
                    row[1..].copy_from_slice(job);
                    rows.push(&row);
                })
            })?;
            commit_as_claimed(untouched, claimed);
            Ok(rows.end())
        })
    }
);

/// Whether a claim has taken jobs under a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimed {
    /// No job, or only jobs without a limit. A crash may undo the claim while the worker executes
    /// its jobs, and other workers claim them again; no limit can be exceeded by that.
    Free,
    Limited,
}

/// Lets a transaction that has only claimed jobs without a limit commit without waiting for the
/// disk.
fn commit_as_claimed(untouched: bool, claimed: Claimed) {
    if untouched && claimed == Claimed::Free {
        durability::may_be_lost();
    }
}

/// The arguments of a claim.
struct Request {
    worker: String,
    max_jobs: usize,
    /// How many jobs must be ready, unless one has been ready for so long, in microseconds.
    min_jobs: usize,
    max_wait: Option<i64>,
    tasks: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    /// The versions that the worker takes beside jobs without one; `None` is all.
    versions: Option<Vec<String>>,
    /// The tasks and groups that the caller may claim.
    scope: Scope,
    lease_micros: i64,
    /// How many of the jobs, the first ones, the worker begins as soon as it has the answer; it
    /// reports when each begins. `None`: all begin with the claim.
    places: Option<usize>,
    /// The role whose SQL jobs an executor asks for.
    run_as: Option<String>,
}

impl Request {
    /// Returns the arguments worker, max_jobs, tasks, groups, lease, places, versions, min_jobs and
    /// max_wait, which begin at `first`.
    fn from_call(call: &Call, first: usize) -> Result<Self> {
        let lease = call.optional_positive(first + 4, "lease")?;
        let request = Self {
            worker: match call.optional_name(first, "worker")? {
                Some(worker) => worker,
                None => session_name(),
            },
            max_jobs: call
                .optional_within(first + 1, "max_jobs", 1, MAX_JOBS)?
                .unwrap_or(1) as usize,
            min_jobs: call
                .optional_within(first + 7, "min_jobs", 1, MAX_JOBS)?
                .unwrap_or(1) as usize,
            max_wait: call.optional_not_negative(first + 8, "max_wait")?,
            tasks: call.filter(first + 2, "tasks")?,
            groups: call.filter(first + 3, "groups")?,
            versions: call.filter(first + 6, "versions")?,
            scope: Scope::default(),
            lease_micros: lease.unwrap_or_else(|| micros(setting::default_lease())),
            places: call
                .optional_within(first + 5, "places", 0, MAX_JOBS)?
                .map(|places| places as usize),
            run_as: None,
        };
        request.check_min_jobs()?;
        Ok(request)
    }

    /// Restricts the request to the caller's scope. Names outside the scope are an error.
    fn narrow(&mut self, spi: &Spi, caller: Caller) -> Result<()> {
        self.scope = access_scope::of_caller(spi, caller);
        self.scope
            .require_filter(self.tasks.as_deref(), self.groups.as_deref())
    }

    /// Returns whether the claim may not see all rows. A kept snapshot does not show later rows, as
    /// a filter does not show the rows of others.
    fn is_filtered(&self) -> bool {
        spi::keeps_snapshot()
            || self.tasks.is_some()
            || self.groups.is_some()
            || self.versions.is_some()
            || self.scope.is_limited()
    }
}

/// Grants a lease for each of the best waiting jobs, and passes their rows to `push` in the order
/// of claiming.
fn claim(
    spi: &Spi,
    request: &Request,
    push: impl FnMut(&[Option<pg_sys::Datum>; COLUMNS]),
) -> Result<Claimed> {
    if !enough::is_ready(spi, request) {
        return Ok(Claimed::Free);
    }
    let rings = wake::rings();
    let mut pick = Pick::begin(request);
    if !pick.is_full() {
        let aging = setting::priority_aging().map(micros);
        pick.take_from(spi, List::of(spi, request, aging.is_some()), aging);
    }
    pick.block();
    unreadable_job::put_off(spi, std::mem::take(&mut pick.unreadable), pick.now);
    pick.unlock_idle();
    let look = match (pick.jobs.len() < request.max_jobs, pick.saw_all) {
        _ if pick.is_out_of_locks || pick.is_out_of_places => Searched::Part,
        (true, true) => Searched::All(rings),
        (true, false) => Searched::LeftRows(rings),
        (false, _) => Searched::Part,
    };
    wake::looked(look, request.is_filtered(), pick.opens_at);
    let claimed = pick.claimed();
    let Pick {
        counter,
        jobs,
        rates,
        ..
    } = pick;
    rates.into_iter().for_each(Rates::close);
    counter.close();
    if jobs.is_empty() {
        return Ok(claimed);
    }
    // Read under the locks of the limits, so it is later than the ends of jobs that made room.
    let now = Timestamp::now();
    metrics::claimed(jobs.iter().map(|job| &job.row), now);
    grant::grant(request, &jobs, now, push)?;
    unpark_manifests(spi, &jobs);
    worker_registry::seen(spi, &request.worker, now);
    Ok(claimed)
}

/// Continues manifests that allow overlap and waited until their queued job was claimed.
fn unpark_manifests(spi: &Spi, picked: &[Picked]) {
    let mut manifests: Vec<i64> = picked
        .iter()
        .filter_map(|job| job.row.get(Waiting::ManifestId))
        .collect();
    manifests.sort_unstable();
    manifests.dedup();
    if unpark(spi, manifests) {
        wake::mark(wake::DUE);
    }
}

/// Continues manifests that allow overlap; returns whether there are any. Those with a locked state
/// are left to the next cycle: the transaction that locked it may have decided before the claim.
pub(crate) fn unpark(spi: &Spi, manifests: Vec<i64>) -> bool {
    if manifests.is_empty() {
        return false;
    }
    let rows = spi.query(ClaimUnpark {
        manifest_ids: arg(manifests),
    });
    for row in rows.iter().filter(|row| !row.is_unparked) {
        changes::left(Left::Overlap(row.manifest_id), 1);
    }
    rows.len() > 0
}

/// A job that this transaction has taken from the queue.
struct Picked {
    row: Row,
    /// The job counts towards the limit of its group.
    limited: bool,
    /// The time for which a rate granted the start.
    started_at: Option<Timestamp>,
}

/// A group that a claim has checked.
struct PickedGroup {
    room: Room,
    /// The rate under which its jobs start, and its gates.
    rate: Option<(String, RateGates)>,
    /// Jobs of the group are taken.
    is_used: bool,
}

/// A concurrency key or a manifest that a claim has locked.
struct PickedShared {
    /// The running jobs that share it, including those taken by this claim.
    held: limit::Held,
    /// Jobs that share it are taken or blocked.
    is_used: bool,
    /// How many jobs that share it may run at once, by the group of the next one.
    allowed: HashMap<String, i64>,
}

/// A lock that can be released if no job was taken or blocked under it.
enum Idle {
    Group(String),
    Shared(Shared),
}

/// The state of a claim while it takes jobs under all limits.
struct Pick {
    counter: Counter,
    now: Timestamp,
    jobs: Vec<Picked>,
    max_jobs: usize,
    /// How many jobs begin at once: a rate grants nothing that is fetched ahead of its start.
    places: usize,
    /// Open once a job is met that a rate limits.
    rates: Option<Rates>,
    /// When the next rate has room for which jobs were left.
    opens_at: Option<i64>,
    groups: HashMap<String, PickedGroup>,
    kept: group::LockedGroups,
    /// The keys and manifests that the claim has locked; `None` for those that it has not.
    shared: HashMap<Shared, Option<PickedShared>>,
    /// How many locks the claim holds on limited groups, keys and manifests; and those that may be
    /// released again.
    locks: usize,
    idle: Vec<Idle>,
    /// How many keys and manifests are locked only for the jobs that the claim blocks there.
    only_blocked: usize,
    /// The claim has stopped because it holds as many locks as it may.
    is_out_of_locks: bool,
    /// The claim has left a job of a rate because it could only be fetched ahead.
    is_out_of_places: bool,
    /// Rows whose key or manifest has no room: they leave their lanes.
    blocked: Vec<Blocked>,
    /// Jobs that cannot be read.
    unreadable: Vec<Unreadable>,
    /// How many jobs were passed that cost more than the burst of their rate, for each key of it.
    above_burst: HashMap<Bound, usize>,
    /// The claim may have passed jobs that another claim can take: it does not know which job of a
    /// rate is the first.
    passed_jobs: bool,
    in_limited_database: bool,
    /// The claim has left no row that may become claimable without a ring. False if it has left a
    /// row because another transaction has locked its limit, and if it may not know all sections.
    saw_all: bool,
}
