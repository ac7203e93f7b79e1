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

use crate::clock::{Timestamp, micros};
use crate::entry::{Call, sql_function};
use crate::error::{Error, Result};
use crate::lease::Held;
use crate::spi::{self, Spi, SpiRow, SpiRows, arg, array_arg, statement};
use crate::{group, outcome, setting, wake};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

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

/// Where a job stands within its class: priority first, then age.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    priority: Reverse<i16>,
    job_id: i64,
}

/// `trax.work_queue` and its index, open for one pick. Everything here belongs to the resource owner of the
/// transaction, so that an error on the way leaks nothing.
struct QueueScan {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    lock_slot: *mut pg_sys::TupleTableSlot,
}

impl QueueScan {
    fn open() -> Self {
        // SAFETY: names of ours; the schema exists while this function does. The pushed snapshot stays active
        // until `close`.
        unsafe {
            let schema = pg_sys::get_namespace_oid(c"trax".as_ptr(), false);
            let table = pg_sys::table_open(
                pg_sys::get_relname_relid(c"work_queue".as_ptr(), schema),
                pg_sys::RowExclusiveLock as i32,
            );
            let index = pg_sys::index_open(
                pg_sys::get_relname_relid(c"work_queue_ready".as_ptr(), schema),
                pg_sys::RowExclusiveLock as i32,
            );
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            let lock_slot = pg_sys::table_slot_create(table, std::ptr::null_mut());
            Self {
                table,
                index,
                snapshot: pg_sys::GetActiveSnapshot(),
                lock_slot,
            }
        }
    }

    /// The best row of each lane that has one. One scan looks at all of them: a scan of its own, 30 kB of memory, is
    /// for lanes that the claim takes from.
    fn heads<'lane>(&self, lanes: &'lane [Lane]) -> BinaryHeap<Head<'lane>> {
        let probe = Cursor::begin(self);
        let heads = lanes
            .iter()
            .filter_map(|lane| {
                probe.go_to(lane);
                probe.next().map(|key| Head {
                    lane,
                    key,
                    cursor: None,
                })
            })
            .collect();
        probe.end();
        heads
    }

    /// Locks the row that `cursor` shows; false when another transaction holds, took or changed it.
    fn lock(&self, cursor: &Cursor) -> bool {
        let mut tid = cursor.tid();
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: the tid is that of a row of the open table which the snapshot sees; the slot is of its kind.
        let outcome = unsafe {
            pg_sys::table_tuple_lock(
                self.table,
                &raw mut tid,
                self.snapshot,
                self.lock_slot,
                pg_sys::GetCurrentCommandId(true),
                pg_sys::LockTupleMode::LockTupleExclusive,
                pg_sys::LockWaitPolicy::LockWaitSkip,
                0,
                &raw mut failure,
            )
        };
        outcome == pg_sys::TM_Result::TM_Ok
    }

    fn close(self) {
        // SAFETY: closes what `open` opened, in reverse; the locks stay until the transaction ends.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.lock_slot);
            pg_sys::PopActiveSnapshot();
            pg_sys::index_close(self.index, pg_sys::NoLock as i32);
            pg_sys::table_close(self.table, pg_sys::NoLock as i32);
        }
    }
}

#[cfg(not(feature = "pg18"))]
unsafe fn begin_index_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
) -> pg_sys::IndexScanDesc {
    // SAFETY: as the caller says.
    unsafe { pg_sys::index_beginscan(table, index, snapshot, 1, 0) }
}

#[cfg(feature = "pg18")]
unsafe fn begin_index_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
) -> pg_sys::IndexScanDesc {
    // SAFETY: as the caller says; no instrumentation.
    unsafe { pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), 1, 0) }
}

/// A scan of the index with the row that it shows.
struct Cursor {
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
}

impl Cursor {
    fn begin(queue: &QueueScan) -> Self {
        // SAFETY: table, index and snapshot are open until after `end`.
        unsafe {
            Self {
                scan: begin_index_scan(queue.table, queue.index, queue.snapshot),
                slot: pg_sys::table_slot_create(queue.table, std::ptr::null_mut()),
            }
        }
    }

    /// Begins again, before the first row of a lane.
    fn go_to(&self, lane: &Lane) {
        // SAFETY: the index is on (lane_id, priority desc, job_id), so one equality key on bigint bounds the lane
        // and a forward scan gives the order of claiming; the scan copies the key.
        unsafe {
            let mut key = pg_sys::ScanKeyData::default();
            pg_sys::ScanKeyInit(
                &raw mut key,
                1,
                pg_sys::BTEqualStrategyNumber as u16,
                pg_sys::Oid::from(pg_sys::F_INT8EQ),
                pg_sys::Datum::from(lane.id),
            );
            pg_sys::index_rescan(self.scan, &raw mut key, 1, std::ptr::null_mut(), 0);
        }
    }

    /// Goes to the next row of the lane that the snapshot sees; `None` at its end.
    fn next(&self) -> Option<Key> {
        // SAFETY: the scan and its slot are open; the columns are declared not null with these types.
        unsafe {
            if !pg_sys::index_getnext_slot(
                self.scan,
                pg_sys::ScanDirection::ForwardScanDirection,
                self.slot,
            ) {
                return None;
            }
            let mut is_null = false;
            let job_id = pg_sys::slot_getattr(self.slot, JOB_ID_COLUMN, &raw mut is_null);
            let priority = pg_sys::slot_getattr(self.slot, PRIORITY_COLUMN, &raw mut is_null);
            Some(Key {
                priority: Reverse(priority.value() as i16),
                job_id: job_id.value() as i64,
            })
        }
    }

    fn tid(&self) -> pg_sys::ItemPointerData {
        // SAFETY: the slot holds a row of the table.
        unsafe { (*self.slot).tts_tid }
    }

    fn end(self) {
        // SAFETY: ends what `begin` began.
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
        }
    }
}

/// The best row of one lane that has not been looked at yet.
struct Head<'lane> {
    lane: &'lane Lane,
    key: Key,
    /// Open once the claim has looked at a row of the lane.
    cursor: Option<Cursor>,
}

impl Head<'_> {
    /// The lane's own scan, at the row of `key`.
    fn cursor(&mut self, queue: &QueueScan) -> Option<&Cursor> {
        if self.cursor.is_none() {
            let cursor = Cursor::begin(queue);
            cursor.go_to(self.lane);
            // The probe saw this row under the same snapshot.
            if cursor.next().is_none() {
                cursor.end();
                return None;
            }
            self.cursor = Some(cursor);
        }
        self.cursor.as_ref()
    }

    /// Goes to the next row of the lane; false at its end.
    fn advance(&mut self) -> bool {
        match self.cursor.as_ref().and_then(Cursor::next) {
            Some(key) => {
                self.key = key;
                true
            }
            None => false,
        }
    }

    fn end(self) {
        if let Some(cursor) = self.cursor {
            cursor.end();
        }
    }
}

/// `BinaryHeap` gives its greatest element first: the head with the smallest key.
impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Head<'_> {}

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
    // SAFETY: both are plain variables of this backend; the name is a C string or null.
    unsafe {
        let application = if pg_sys::application_name.is_null() {
            String::new()
        } else {
            std::ffi::CStr::from_ptr(pg_sys::application_name)
                .to_string_lossy()
                .into_owned()
        };
        let application = if application.is_empty() {
            "session"
        } else {
            application.as_str()
        };
        let process = pg_sys::MyProcPid;
        format!("{application}:{process}")
    }
}
