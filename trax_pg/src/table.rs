//! Rows without statements: how the hot path finds, takes and adds rows of the tables that every job goes through.
//!
//! Here are the calls of the table and index access methods that executor nodes make, without the nodes, without copies
//! of rows between them, and with one WAL record for the rows that land in one page. A job claimed and completed by 100
//! costs 8.9 µs of the server's time and 891 B of WAL so; by statements it was 13.7 µs and 1,038 B.
//!
//! Holds: everything goes through the access methods, so that indexes (those of an administrator too), TOAST,
//! serializable reads, logical decoding and statistics of the tables see what they would see of a statement. Check
//! constraints are not evaluated: who adds a row answers for them, and the tests do with constraints in force. Row triggers
//! that an administrator adds do not fire: history is read, or followed by logical decoding.
//! Whatever is open belongs to the resource owner of the transaction, so that an error on the way leaks nothing.

use pgrx::datum::{FromDatum, IntoDatum};
use pgrx::{direct_function_call, pg_sys};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::Once;

/// Most rows that are added at once.
const ROWS_AT_ONCE: usize = 1000;

/// Names the columns of a table in their order, for [`Table::open`] and for reading and writing its rows.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident in $table:literal { $($column:ident: $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[allow(clippy::enum_variant_names, reason = "columns have their names from the table")]
        #[allow(dead_code, reason = "all columns have a place, also those that only statements read")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub(crate) enum $name { $($column),* }

        impl $name {
            pub(crate) const TABLE: &'static std::ffi::CStr = $table;
            pub(crate) const ALL: &'static [&'static std::ffi::CStr] = &[$($text),*];
        }

        impl From<$name> for usize {
            fn from(column: $name) -> usize {
                column as usize
            }
        }
    };
}
pub(crate) use columns;

/// Freed memory that a session keeps for its next call, in bytes: a claim of 1,000 jobs with small inputs needs about as
/// much. With the C library's 128 kB each call of 100 jobs takes its memory from the kernel and gives it back, 5 % of its
/// time.
const MEMORY_KEPT: i32 = 4 << 20;

static KEEP_MEMORY: Once = Once::new();

fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers of the C library's allocator in this process.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, MEMORY_KEPT);
        // Or blocks of this size would be mapped and unmapped each time.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MEMORY_KEPT);
    }
}

/// A table of ours, locked for changes of its rows until the transaction ends.
pub(crate) struct Table {
    relation: pg_sys::Relation,
    columns: &'static [&'static CStr],
}

impl Table {
    /// Opens `trax.<name>`, which has these columns.
    pub(crate) fn open(name: &CStr, columns: &'static [&'static CStr]) -> Self {
        KEEP_MEMORY.call_once(keep_memory);
        let oid = relation_oid(name);
        assert!(oid != pg_sys::InvalidOid, "the extension has {name:?}");
        // SAFETY: a relation of ours, which the lock keeps.
        let relation = unsafe { pg_sys::table_open(oid, pg_sys::RowExclusiveLock as i32) };
        let table = Self { relation, columns };
        assert!(
            table.is_as_known(),
            "the tables and the library are of one version: alter extension trax update"
        );
        table
    }

    fn is_as_known(&self) -> bool {
        // SAFETY: the descriptor of an open relation has as many attributes as it says.
        unsafe {
            let shape = (*self.relation).rd_att;
            let width = (*shape).natts as usize;
            width >= self.columns.len()
                && self.columns.iter().enumerate().all(|(index, name)| {
                    let attribute = attribute(shape, index);
                    CStr::from_ptr((*attribute).attname.data.as_ptr()) == *name
                })
                // A column that somebody added and dropped again keeps its place.
                && (self.columns.len()..width).all(|index| (*attribute(shape, index)).attisdropped)
        }
    }

    fn slot(&self) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the relation is open; the slot lives in the current memory context.
        unsafe { pg_sys::table_slot_create(self.relation, std::ptr::null_mut()) }
    }

    /// Deletes the row at `tid`, which `view` sees; waits for a transaction that has it, or says so.
    pub(crate) fn delete(&self, tid: pg_sys::ItemPointerData, view: &View, wait: bool) -> Taken {
        let mut tid = tid;
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: the tid is that of a row of this table; a read-only transaction is refused as a statement is.
        let result = unsafe {
            pg_sys::PreventCommandIfReadOnly(c"DELETE".as_ptr());
            pg_sys::table_tuple_delete(
                self.relation,
                &raw mut tid,
                pg_sys::GetCurrentCommandId(true),
                view.snapshot,
                std::ptr::null_mut(),
                wait,
                &raw mut failure,
                false,
            )
        };
        match result {
            pg_sys::TM_Result::TM_Ok => Taken::Yes,
            pg_sys::TM_Result::TM_Updated => Taken::Changed,
            pg_sys::TM_Result::TM_BeingModified => Taken::Busy,
            _ => Taken::No,
        }
    }

    /// Deletes the row at `tid`, which `view` sees, unless another transaction has it; false when it does, or has
    /// changed it.
    pub(crate) fn delete_if_free(&self, tid: pg_sys::ItemPointerData, view: &View) -> bool {
        match self.delete(tid, view, false) {
            Taken::Yes => true,
            // A lock of our own, which the new version of a row inherits, looks like that of another.
            Taken::Busy => {
                self.lock_if_free(tid, view) && self.delete(tid, view, true) == Taken::Yes
            }
            Taken::No | Taken::Changed => false,
        }
    }

    /// Locks the row at `tid` unless another transaction has it; false when it does, or has changed it.
    pub(crate) fn lock_if_free(&self, tid: pg_sys::ItemPointerData, view: &View) -> bool {
        let mut tid = tid;
        let mut failure = pg_sys::TM_FailureData::default();
        let slot = self.slot();
        // SAFETY: the tid is that of a row of this table; the slot is of its kind.
        unsafe {
            pg_sys::PreventCommandIfReadOnly(c"SELECT FOR UPDATE".as_ptr());
            let result = pg_sys::table_tuple_lock(
                self.relation,
                &raw mut tid,
                view.snapshot,
                slot,
                pg_sys::GetCurrentCommandId(true),
                pg_sys::LockTupleMode::LockTupleExclusive,
                pg_sys::LockWaitPolicy::LockWaitSkip,
                0,
                &raw mut failure,
            );
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            result == pg_sys::TM_Result::TM_Ok
        }
    }

    pub(crate) fn close(self) {
        // SAFETY: opened by us; the lock stays until the transaction ends.
        unsafe { pg_sys::table_close(self.relation, pg_sys::NoLock as i32) }
    }
}

/// What came of deleting a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// It is deleted.
    No,
    /// A transaction that has not ended has it.
    Busy,
    /// Another transaction has changed it since the snapshot.
    Changed,
}

unsafe fn attribute(
    shape: pg_sys::TupleDesc,
    index: usize,
) -> *const pg_sys::FormData_pg_attribute {
    // SAFETY: as the caller says, the descriptor has this attribute.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*shape).attrs.as_ptr().add(index);
        #[cfg(feature = "pg18")]
        return pg_sys::TupleDescAttr(shape, index as i32);
    }
}

fn relation_oid(name: &CStr) -> pg_sys::Oid {
    // SAFETY: looks names up.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"trax".as_ptr(), false);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    }
}

/// The partition `trax.<name>` of the table `parent` of ours, which has the same columns; `None` if there is none.
pub(crate) fn open_partition(parent: &Table, name: &CStr) -> Option<Table> {
    let oid = relation_oid(name);
    if oid == pg_sys::InvalidOid {
        return None;
    }
    // SAFETY: the lock on the parent keeps a partition from being detached; one that is dropped at this moment opens as
    // null.
    unsafe {
        let relation = pg_sys::try_relation_open(oid, pg_sys::RowExclusiveLock as i32);
        if relation.is_null() {
            return None;
        }
        let table = Table {
            relation,
            columns: parent.columns,
        };
        let is_ours = (*(*relation).rd_rel).relispartition && table.is_as_known();
        if is_ours {
            return Some(table);
        }
        table.close();
        None
    }
}

/// The next values of the sequence `trax.<name>`, ascending.
pub(crate) fn next_ids(name: &CStr, count: usize) -> Vec<i64> {
    let sequence = Some(pg_sys::Datum::from(relation_oid(name)));
    (0..count)
        .map(|_| {
            // SAFETY: the function takes the oid of a sequence and never gives null.
            let id = unsafe { direct_function_call::<i64>(pg_sys::nextval_oid, &[sequence]) };
            id.expect("a sequence gives a number")
        })
        .collect()
}

/// What the scans of one step see.
pub(crate) struct View {
    snapshot: pg_sys::Snapshot,
}

impl View {
    /// A new snapshot; in REPEATABLE READ and SERIALIZABLE that of the transaction.
    pub(crate) fn of_transaction() -> Self {
        // SAFETY: the pushed snapshot stays active until `end`; what statements of ours have written counts.
        unsafe {
            pg_sys::CommandCounterIncrement();
            Self::push(pg_sys::GetTransactionSnapshot())
        }
    }

    /// What has committed until now, whatever the isolation level, and what this transaction has written.
    pub(crate) fn latest() -> Self {
        // SAFETY: as above.
        unsafe {
            pg_sys::CommandCounterIncrement();
            Self::push(pg_sys::GetLatestSnapshot())
        }
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
        // SAFETY: pushed by us, and views end in reverse.
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

    /// On a column whose collation is "C". A copy of the text lives in the current memory context.
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
        // SAFETY: the function is the one behind the operator of the strategy, for values of this type.
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

/// An index of a table of ours, open for scans.
pub(crate) struct Index {
    relation: pg_sys::Relation,
    table: pg_sys::Relation,
}

impl Index {
    pub(crate) fn open(table: &Table, name: &CStr) -> Self {
        // SAFETY: a name of ours; the lock keeps the index.
        unsafe {
            let relation = pg_sys::index_open(relation_oid(name), pg_sys::RowExclusiveLock as i32);
            Self {
                relation,
                table: table.relation,
            }
        }
    }

    /// A scan that begins with the first `Scan::seek`.
    pub(crate) fn scan(&self, view: &View, keys: i32) -> Scan {
        // SAFETY: table, index and snapshot are open until after `end`.
        unsafe {
            Scan {
                scan: begin_index_scan(self.table, self.relation, view.snapshot, keys),
                slot: pg_sys::table_slot_create(self.table, std::ptr::null_mut()),
            }
        }
    }

    pub(crate) fn close(self) {
        // SAFETY: opened by us.
        unsafe { pg_sys::index_close(self.relation, pg_sys::NoLock as i32) }
    }
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

/// A scan of an index with the row that it shows.
pub(crate) struct Scan {
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
}

impl Scan {
    /// Begins again, before the first row that meets the conditions; as many as the scan was made for.
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

    /// Goes to the next row that the snapshot sees; false at the end.
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

    /// How many rows the snapshot sees from here on, up to `limit`.
    pub(crate) fn count(&self, limit: i64) -> i64 {
        let mut count = 0;
        while count < limit && self.next() {
            count += 1;
        }
        count
    }

    /// A value of the row that the scan shows, which lives as long as it shows it.
    pub(crate) fn value(&self, column: impl Into<usize>) -> Option<pg_sys::Datum> {
        // SAFETY: the slot holds a row of the table.
        unsafe { slot_value(self.slot, column.into()) }
    }

    /// A value that is passed by value, of a column that is not null.
    pub(crate) fn number(&self, column: impl Into<usize>) -> i64 {
        self.value(column).map_or(0, |datum| datum.value() as i64)
    }

    /// A value of the row that the scan shows.
    pub(crate) fn get<T: FromDatum>(&self, column: impl Into<usize>) -> Option<T> {
        let datum = self.value(column)?;
        // SAFETY: the column has the SQL type that T reads.
        unsafe { T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid) }
    }

    pub(crate) fn tid(&self) -> pg_sys::ItemPointerData {
        // SAFETY: the slot holds a row of the table.
        unsafe { (*self.slot).tts_tid }
    }

    /// A copy of the row that the scan shows.
    pub(crate) fn row(&self) -> Row {
        // SAFETY: the slot holds a row of the table; the copy lives in the current memory context.
        unsafe {
            let shape = (*self.slot).tts_tupleDescriptor;
            let tuple = pg_sys::ExecCopySlotHeapTuple(self.slot);
            let columns = (*shape).natts as usize;
            let mut row = Row {
                values: vec![pg_sys::Datum::from(0); columns],
                nulls: vec![true; columns],
            };
            pg_sys::heap_deform_tuple(
                tuple,
                shape,
                row.values.as_mut_ptr(),
                row.nulls.as_mut_ptr(),
            );
            row
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

unsafe fn slot_value(slot: *mut pg_sys::TupleTableSlot, column: usize) -> Option<pg_sys::Datum> {
    let mut is_null = false;
    // SAFETY: as the caller says; the server checks the column.
    let datum = unsafe { pg_sys::slot_getattr(slot, column as i32 + 1, &raw mut is_null) };
    (!is_null).then_some(datum)
}

/// The values of a row, which live as long as the memory context they were read in.
pub(crate) struct Row {
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

impl Row {
    pub(crate) fn value(&self, column: impl Into<usize>) -> Option<pg_sys::Datum> {
        let column = column.into();
        (!self.nulls[column]).then_some(self.values[column])
    }

    /// A value that is passed by value, of a column that is not null.
    pub(crate) fn number(&self, column: impl Into<usize>) -> i64 {
        self.value(column).map_or(0, |datum| datum.value() as i64)
    }

    pub(crate) fn get<T: FromDatum>(&self, column: impl Into<usize>) -> Option<T> {
        let datum = self.value(column)?;
        // SAFETY: the column has the SQL type that T reads.
        unsafe { T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid) }
    }
}

/// Adds rows to a table and its indexes, many at once.
pub(crate) struct Inserter<'table> {
    table: &'table Table,
    state: *mut pg_sys::EState,
    target: *mut pg_sys::ResultRelInfo,
    /// A copy, which is not counted: slots need not be given back one by one, they go with the memory context.
    shape: pg_sys::TupleDesc,
    slots: Vec<*mut pg_sys::TupleTableSlot>,
    filled: usize,
}

impl<'table> Inserter<'table> {
    pub(crate) fn begin(table: &'table Table) -> Self {
        // SAFETY: the relation is open; everything is allocated in the current memory context or the state's own.
        unsafe {
            pg_sys::PreventCommandIfReadOnly(c"INSERT".as_ptr());
            let state = pg_sys::CreateExecutorState();
            let target = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast();
            pg_sys::InitResultRelInfo(target, table.relation, 1, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(target, false);
            Self {
                table,
                state,
                target,
                shape: pg_sys::CreateTupleDescCopy((*table.relation).rd_att),
                slots: Vec::new(),
                filled: 0,
            }
        }
    }

    /// The next row, all null; what its values point to lives until `end`.
    pub(crate) fn row(&mut self) -> NewRow<'_> {
        if self.filled == ROWS_AT_ONCE {
            self.flush();
        }
        if self.filled == self.slots.len() {
            // SAFETY: the descriptor lives as long as the slots.
            self.slots.push(unsafe {
                pg_sys::MakeSingleTupleTableSlot(self.shape, &raw const pg_sys::TTSOpsVirtual)
            });
        }
        let slot = self.slots[self.filled];
        self.filled += 1;
        // SAFETY: a slot has a value and a flag for each column, dropped ones included; nobody else writes them.
        unsafe {
            let width = (*(*slot).tts_tupleDescriptor).natts as usize;
            std::slice::from_raw_parts_mut((*slot).tts_isnull, width).fill(true);
        }
        NewRow {
            slot,
            columns: self.table.columns.len(),
            lifetime: PhantomData,
        }
    }

    fn flush(&mut self) {
        if self.filled == 0 {
            return;
        }
        let slots = &mut self.slots[..self.filled];
        self.filled = 0;
        // SAFETY: each slot has been filled with a row of the table; copies made on the way live in a memory context
        // that is emptied afterwards.
        unsafe {
            let context = pg_sys::CurrentMemoryContext;
            let expressions = pg_sys::MakePerTupleExprContext(self.state);
            pg_sys::CurrentMemoryContext = (*expressions).ecxt_per_tuple_memory;
            for slot in slots.iter() {
                pg_sys::ExecStoreVirtualTuple(*slot);
            }
            pg_sys::table_multi_insert(
                self.table.relation,
                slots.as_mut_ptr(),
                slots.len() as i32,
                pg_sys::GetCurrentCommandId(true),
                0,
                std::ptr::null_mut(),
            );
            for slot in slots.iter() {
                insert_into_indexes(self.target, *slot, self.state);
                pg_sys::ExecClearTuple(*slot);
            }
            pg_sys::CurrentMemoryContext = context;
            pg_sys::MemoryContextReset((*expressions).ecxt_per_tuple_memory);
        }
    }

    /// Adds what is left, and lets what follows in this transaction see the rows.
    pub(crate) fn end(mut self) {
        self.flush();
        // SAFETY: ends what `begin` began.
        unsafe {
            pg_sys::ExecCloseIndices(self.target);
            pg_sys::FreeExecutorState(self.state);
            pg_sys::CommandCounterIncrement();
        }
    }
}

unsafe fn insert_into_indexes(
    target: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
) {
    // SAFETY: the slot holds a row that has just been added to the target's table.
    unsafe {
        pg_sys::ExecInsertIndexTuples(
            target,
            slot,
            state,
            false,
            false,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            #[cfg(not(feature = "pg15"))]
            false,
        );
    }
}

/// A row that is being filled.
pub(crate) struct NewRow<'inserter> {
    slot: *mut pg_sys::TupleTableSlot,
    columns: usize,
    lifetime: PhantomData<&'inserter ()>,
}

impl NewRow<'_> {
    /// Sets a column; one that is not set is null.
    pub(crate) fn set(&mut self, column: impl Into<usize>, value: Option<pg_sys::Datum>) {
        let column = column.into();
        assert!(column < self.columns, "a column of the table");
        // SAFETY: within the arrays of the slot.
        unsafe {
            (*self.slot).tts_isnull.add(column).write(value.is_none());
            if let Some(value) = value {
                (*self.slot).tts_values.add(column).write(value);
            }
        }
    }
}
