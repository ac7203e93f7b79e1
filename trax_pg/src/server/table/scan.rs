//! Reading: rows found by an index.

use super::known::relation_oid;
use super::unguarded;
use super::unguarded::guarded;
use super::{METHOD, Table};
use crate::error::Error;
use crate::server::running::Running;
use crate::server::snapshot::latest_snapshot;
use crate::server::spi::attribute;
use pgrx::datum::{FromDatum, IntoDatum};
use pgrx::pg_sys;
use pgrx::varlena::{varatt_is_1b, varatt_is_1b_e, varatt_is_4b_u, varlena_to_byte_slice};
use std::ffi::CStr;

/// The snapshot of the scans of one step.
pub(crate) struct View {
    pub(super) snapshot: pg_sys::Snapshot,
}

impl View {
    /// Takes a new snapshot; in REPEATABLE READ and SERIALIZABLE the transaction's.
    pub(crate) fn of_transaction() -> Self {
        // SAFETY: the pushed snapshot stays active until `end`; changes of earlier statements of
        // the transaction count.
        unsafe {
            pg_sys::CommandCounterIncrement();
            Self::push(pg_sys::GetTransactionSnapshot())
        }
    }

    /// Takes a snapshot of all that is committed now, whatever the isolation level, and of this
    /// transaction's own changes.
    pub(crate) fn latest() -> Self {
        // SAFETY: as above.
        unsafe { Self::push(latest_snapshot()) }
    }

    unsafe fn push(snapshot: pg_sys::Snapshot) -> Self {
        // SAFETY: a snapshot just taken.
        unsafe {
            pg_sys::PushActiveSnapshot(snapshot);
            Self {
                snapshot: pg_sys::GetActiveSnapshot(),
            }
        }
    }

    pub(crate) fn end(self) {
        // SAFETY: pushed by `push`, and views end in reverse order.
        unsafe { pg_sys::PopActiveSnapshot() }
    }
}

/// A condition on a column of an index, by its position from 1.
pub(crate) struct Key(pg_sys::ScanKeyData);

impl Key {
    pub(crate) fn equals(column: i16, value: i64) -> Self {
        Self::new(
            column,
            pg_sys::BTEqualStrategyNumber,
            pg_sys::F_INT8EQ,
            pg_sys::Datum::from(value),
        )
    }

    pub(crate) fn at_least(column: i16, value: i64) -> Self {
        Self::new(
            column,
            pg_sys::BTGreaterEqualStrategyNumber,
            pg_sys::F_INT8GE,
            pg_sys::Datum::from(value),
        )
    }

    pub(crate) fn above(column: i16, value: i64) -> Self {
        Self::new(
            column,
            pg_sys::BTGreaterStrategyNumber,
            pg_sys::F_INT8GT,
            pg_sys::Datum::from(value),
        )
    }

    pub(crate) fn at_most(column: i16, value: i64) -> Self {
        Self::new(
            column,
            pg_sys::BTLessEqualStrategyNumber,
            pg_sys::F_INT8LE,
            pg_sys::Datum::from(value),
        )
    }

    pub(crate) fn equals_small(column: i16, value: i16) -> Self {
        Self::new(
            column,
            pg_sys::BTEqualStrategyNumber,
            pg_sys::F_INT2EQ,
            pg_sys::Datum::from(value),
        )
    }

    pub(crate) fn less_small(column: i16, value: i16) -> Self {
        Self::new(
            column,
            pg_sys::BTLessStrategyNumber,
            pg_sys::F_INT2LT,
            pg_sys::Datum::from(value),
        )
    }

    pub(crate) fn above_int(column: i16, value: i32) -> Self {
        Self::new(
            column,
            pg_sys::BTGreaterStrategyNumber,
            pg_sys::F_INT4GT,
            pg_sys::Datum::from(value),
        )
    }

    /// Returns a key for a column whose collation is "C". A copy of the text lives in the current
    /// memory context.
    pub(crate) fn equals_text(column: i16, value: &str) -> Self {
        let value = value.into_datum().expect("a text is not null");
        let mut key = Self::new(
            column,
            pg_sys::BTEqualStrategyNumber,
            pg_sys::F_TEXTEQ,
            value,
        );
        key.0.sk_collation = pg_sys::C_COLLATION_OID;
        key
    }

    fn new(column: i16, strategy: u32, operator: u32, value: pg_sys::Datum) -> Self {
        let mut key = pg_sys::ScanKeyData::default();
        // SAFETY: the function is the one behind the operator of the strategy, for values of this
        // type.
        unsafe {
            pg_sys::ScanKeyInit(
                &raw mut key,
                column,
                strategy as u16,
                pg_sys::Oid::from(operator),
                value,
            );
        }
        Self(key)
    }
}

/// The writer of a row.
pub(crate) enum Written {
    /// This transaction, or one that has committed.
    Already,
    /// One that has not ended.
    By(Running),
}

/// An index of a table of the extension, open for scans.
pub(crate) struct Index {
    relation: pg_sys::Relation,
    table: pg_sys::Relation,
}

impl Index {
    pub(crate) fn open(table: &Table, name: &'static CStr) -> Self {
        let oid = relation_oid(name);
        if oid == pg_sys::InvalidOid {
            missing(name)
        }
        // SAFETY: an index of the extension; the lock keeps it.
        unsafe {
            let relation = pg_sys::index_open(oid, pg_sys::RowExclusiveLock as i32);
            Self {
                relation,
                table: table.relation,
            }
        }
    }

    /// Returns a scan that begins with the first `Scan::seek`.
    pub(crate) fn scan(&self, view: &View, keys: i32) -> Scan {
        // SAFETY: table, index and snapshot are open until after `end`.
        unsafe {
            Scan {
                scan: begin_index_scan(self.table, self.relation, view.snapshot, keys),
                slot: pg_sys::table_slot_create(self.table, std::ptr::null_mut()),
            }
        }
    }

    /// Returns whether another unfinished transaction has written a row whose current version meets
    /// the conditions.
    pub(crate) fn is_being_written<const N: usize>(&self, keys: [Key; N]) -> bool {
        self.written(keys, |written| matches!(written, Written::By(_)))
            .is_some()
    }

    /// Returns whether there is a row that meets the conditions, also one of a transaction that has
    /// not ended.
    pub(crate) fn any_written<const N: usize>(&self, keys: [Key; N]) -> Option<Written> {
        self.written(keys, |_| true)
    }

    /// Returns the first row that meets the conditions and is the wanted one.
    fn written<const N: usize>(
        &self,
        keys: [Key; N],
        is_wanted: impl Fn(&Written) -> bool,
    ) -> Option<Written> {
        let mut snapshot = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..Default::default()
        };
        let view = View {
            snapshot: &raw mut snapshot,
        };
        let scan = self.scan(&view, N as i32);
        scan.seek(keys);
        let mut found = None;
        // Each row that this snapshot shows sets its `xmin` to the transaction that is still
        // writing it.
        while found.is_none() && scan.next() {
            let written = match snapshot.xmin {
                pg_sys::InvalidTransactionId => Written::Already,
                by => Written::By(Running::of(by)),
            };
            found = Some(written).filter(&is_wanted);
        }
        scan.end();
        found
    }

    pub(crate) fn close(self) {
        // SAFETY: opened by `open`.
        unsafe { pg_sys::index_close(self.relation, pg_sys::NoLock as i32) }
    }
}

/// Raises 55000: an administrator has dropped or renamed an index.
fn missing(index: &CStr) -> ! {
    let index = index.to_string_lossy();
    Error::wrong_state(format!("the index trax.{index} does not exist"))
        .detail("trax reads its table by this index.")
        .hint(format!(
            "Rename it back, or create it again. A database in which trax was just created shows its definition: select pg_get_indexdef('trax.{index}'::regclass)"
        ))
        .raise()
}

unsafe fn begin_index_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: i32,
) -> pg_sys::IndexScanDesc {
    // SAFETY: as the caller says; no instrumentation.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return pg_sys::index_beginscan(table, index, snapshot, keys, 0);
        #[cfg(feature = "pg18")]
        return pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), keys, 0);
    }
}

/// A scan of an index, with its current row.
pub(crate) struct Scan {
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
}

impl Scan {
    /// Begins again, before the first row that meets the conditions; their number must be that of
    /// the scan.
    pub(crate) fn seek<const N: usize>(&self, keys: [Key; N]) {
        let mut keys = keys.map(|key| key.0);
        // SAFETY: the scan copies the keys.
        unsafe {
            pg_sys::index_rescan(
                self.scan,
                keys.as_mut_ptr(),
                N as i32,
                std::ptr::null_mut(),
                0,
            );
        }
    }

    /// Goes to the next row that the snapshot sees; returns false at the end.
    pub(crate) fn next(&self) -> bool {
        // SAFETY: the scan and its slot are open.
        unsafe {
            pg_sys::index_getnext_slot(
                self.scan,
                pg_sys::ScanDirection::ForwardScanDirection,
                self.slot,
            )
        }
    }

    /// Returns a value of the current row, which lives until the next call of `next`.
    pub(crate) fn value(&self, column: impl Into<usize>) -> Option<pg_sys::Datum> {
        // SAFETY: the slot holds a row of the table.
        unsafe { slot_value(self.slot, column.into()) }
    }

    /// Returns a value that is passed by value, of a column that is not null.
    pub(crate) fn number(&self, column: impl Into<usize>) -> i64 {
        self.value(column).map_or(0, |datum| datum.value() as i64)
    }

    /// Returns a value of the current row.
    pub(crate) fn get<T: FromDatum>(&self, column: impl Into<usize>) -> Option<T> {
        let datum = self.value(column)?;
        // SAFETY: the column has the SQL type that T reads.
        unsafe { T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid) }
    }

    /// Returns a text of the current row, which lives until the next call of `next`.
    pub(crate) fn text(&self, column: impl Into<usize>) -> Option<&str> {
        // SAFETY: the callers pass columns of type text.
        self.value(column).and_then(|value| unsafe { text(value) })
    }

    /// Returns whether a transaction that has not ended has locked the row, or one has changed or
    /// deleted it since the snapshot.
    pub(crate) fn is_changing(&self) -> bool {
        let header = self.header();
        // SAFETY: the header of a row in a pinned page; concurrent changes count for the next look.
        unsafe {
            let mask = u32::from((*header).t_infomask);
            if mask & pg_sys::HEAP_XMAX_INVALID != 0 {
                return false;
            }
            let only_locked = mask & pg_sys::HEAP_XMAX_LOCK_ONLY != 0;
            let by = (*header).t_choice.t_heap.t_xmax;
            if mask & pg_sys::HEAP_XMAX_IS_MULTI == 0 {
                return pg_sys::TransactionIdIsInProgress(by)
                    || !only_locked && pg_sys::TransactionIdDidCommit(by);
            }
            pg_sys::MultiXactIdIsRunning(by, only_locked)
                || !only_locked
                    && pg_sys::TransactionIdDidCommit(pg_sys::HeapTupleGetUpdateXid(header))
        }
    }

    /// Returns the transaction that has locked, changed or deleted the row, if it is the only one.
    pub(crate) fn changed_by(&self) -> Option<Running> {
        let header = self.header();
        // SAFETY: as above.
        unsafe {
            let is_one = u32::from((*header).t_infomask) & pg_sys::HEAP_XMAX_IS_MULTI == 0;
            is_one.then(|| Running::of((*header).t_choice.t_heap.t_xmax))
        }
    }

    fn header(&self) -> pg_sys::HeapTupleHeader {
        let mut is_copy = false;
        // SAFETY: the slot holds a row of a heap.
        unsafe { (*pg_sys::ExecFetchSlotHeapTuple(self.slot, false, &raw mut is_copy)).t_data }
    }

    pub(crate) fn tid(&self) -> pg_sys::ItemPointerData {
        // SAFETY: the slot holds a row of the table.
        unsafe { (*self.slot).tts_tid }
    }

    /// Returns a copy of the current row.
    pub(crate) fn row(&self) -> Row {
        let slot = self.slot;
        // SAFETY: the slot holds a row of the table; the copy lives in the current memory context,
        // and a value within the one tuple is at the same offset within the other.
        unsafe {
            let shape = (*slot).tts_tupleDescriptor;
            let columns = (*shape).natts as usize;
            let kind = &*(*slot).tts_ops;
            let copied = kind.copy_heap_tuple.expect(METHOD);
            let Some(stored) = kind.get_heap_tuple else {
                return Row::of(pg_sys::ExecCopySlotHeapTuple(slot), shape);
            };
            let (old, new) = guarded(|| {
                if usize::from((*slot).tts_nvalid as u16) < columns {
                    unguarded::slot_getsomeattrs_int(slot, columns as i32);
                }
                (stored(slot), copied(slot))
            });
            let (from, to) = ((*old).t_data.addr(), (*new).t_data.addr());
            let within = from..from + (*old).t_len as usize;
            let value = |column| {
                let value = *(*slot).tts_values.add(column);
                let is_inside = within.contains(&value.value());
                if is_inside && !(*attribute(shape, column)).attbyval {
                    pg_sys::Datum::from(value.value() - from + to)
                } else {
                    value
                }
            };
            let is_null = |column| *(*slot).tts_isnull.add(column);
            Row((0..columns)
                .map(|column| (!is_null(column)).then(|| value(column)))
                .collect())
        }
    }

    pub(crate) fn end(self) {
        // SAFETY: ends what `scan` began.
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
        }
    }
}

pub(super) unsafe fn slot_value(
    slot: *mut pg_sys::TupleTableSlot,
    column: usize,
) -> Option<pg_sys::Datum> {
    // SAFETY: as the caller says; a column that is already in the slot has a value and a flag, and
    // the server checks the number of any other.
    unsafe {
        if column < usize::from((*slot).tts_nvalid as u16) {
            let is_null = *(*slot).tts_isnull.add(column);
            return (!is_null).then(|| *(*slot).tts_values.add(column));
        }
        let mut is_null = false;
        let datum = pg_sys::slot_getattr(slot, column as i32 + 1, &raw mut is_null);
        (!is_null).then_some(datum)
    }
}

/// Returns a text, without a call of the server when it is stored plainly.
unsafe fn text<'a>(value: pg_sys::Datum) -> Option<&'a str> {
    let stored = value.cast_mut_ptr::<pg_sys::varlena>();
    // SAFETY: as the caller says, the value is a text.
    unsafe {
        let is_plain = varatt_is_4b_u(stored) || varatt_is_1b(stored) && !varatt_is_1b_e(stored);
        is_plain
            .then(|| std::str::from_utf8(varlena_to_byte_slice(stored)).ok())
            .flatten()
            .or_else(|| <&str>::from_polymorphic_datum(value, false, pg_sys::TEXTOID))
    }
}

/// The values of a row, which live as long as the memory context they were read in.
pub(crate) struct Row(Vec<Option<pg_sys::Datum>>);

impl Row {
    unsafe fn of(tuple: pg_sys::HeapTuple, shape: pg_sys::TupleDesc) -> Self {
        // SAFETY: as the caller says, a tuple of this shape.
        unsafe {
            let columns = (*shape).natts as usize;
            let mut values = vec![pg_sys::Datum::from(0); columns];
            let mut nulls = vec![true; columns];
            pg_sys::heap_deform_tuple(tuple, shape, values.as_mut_ptr(), nulls.as_mut_ptr());
            let values = values.into_iter().zip(nulls);
            Self(
                values
                    .map(|(value, is_null)| (!is_null).then_some(value))
                    .collect(),
            )
        }
    }

    /// Returns a text.
    pub(crate) fn text(&self, column: impl Into<usize>) -> Option<&str> {
        // SAFETY: the callers pass columns of type text.
        self.value(column).and_then(|value| unsafe { text(value) })
    }

    pub(crate) fn value(&self, column: impl Into<usize>) -> Option<pg_sys::Datum> {
        self.0[column.into()]
    }

    /// Replaces a value with another form of the same value.
    pub(crate) fn set(&mut self, column: impl Into<usize>, value: pg_sys::Datum) {
        self.0[column.into()] = Some(value);
    }

    /// Returns a value that is passed by value, of a column that is not null.
    pub(crate) fn number(&self, column: impl Into<usize>) -> i64 {
        self.value(column).map_or(0, |datum| datum.value() as i64)
    }

    pub(crate) fn get<T: FromDatum>(&self, column: impl Into<usize>) -> Option<T> {
        let datum = self.value(column)?;
        // SAFETY: the column has the SQL type that T reads.
        unsafe { T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid) }
    }
}
