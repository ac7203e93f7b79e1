//! The scan behind a pick: `trax.work_queue` through its index `work_queue_ready`, a range for each lane.

use super::{CONCURRENCY_KEY_COLUMN, JOB_ID_COLUMN, Lane, PRIORITY_COLUMN};
use pgrx::datum::FromDatum;
use pgrx::pg_sys;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Where a job stands within its class: priority first, then age.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    priority: Reverse<i16>,
    pub(super) job_id: i64,
}

/// `trax.work_queue` and its index, open for one pick. Everything here belongs to the resource owner of the
/// transaction, so that an error on the way leaks nothing.
pub(super) struct QueueScan {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    lock_slot: *mut pg_sys::TupleTableSlot,
}

impl QueueScan {
    pub(super) fn open() -> Self {
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
    pub(super) fn heads<'lane>(&self, lanes: &'lane [Lane]) -> BinaryHeap<Head<'lane>> {
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
    pub(super) fn lock(&self, cursor: &Cursor) -> bool {
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

    pub(super) fn close(self) {
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
pub(super) struct Cursor {
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

    /// The concurrency key of the row that it shows.
    pub(super) fn concurrency_key(&self) -> Option<String> {
        // SAFETY: the slot holds a row of the table, whose column this is is text.
        unsafe {
            let mut is_null = false;
            let key = pg_sys::slot_getattr(self.slot, CONCURRENCY_KEY_COLUMN, &raw mut is_null);
            String::from_polymorphic_datum(key, is_null, pg_sys::TEXTOID)
        }
    }

    pub(super) fn tid(&self) -> pg_sys::ItemPointerData {
        // SAFETY: the slot holds a row of the table.
        unsafe { (*self.slot).tts_tid }
    }

    pub(super) fn end(self) {
        // SAFETY: ends what `begin` began.
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
        }
    }
}

/// The best row of one lane that has not been looked at yet.
pub(super) struct Head<'lane> {
    pub(super) lane: &'lane Lane,
    pub(super) key: Key,
    /// Open once the claim has looked at a row of the lane.
    cursor: Option<Cursor>,
}

impl Head<'_> {
    /// The lane's own scan, at the row of `key`.
    pub(super) fn cursor(&mut self, queue: &QueueScan) -> Option<&Cursor> {
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
    pub(super) fn advance(&mut self) -> bool {
        match self.cursor.as_ref().and_then(Cursor::next) {
            Some(key) => {
                self.key = key;
                true
            }
            None => false,
        }
    }

    pub(super) fn end(self) {
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
