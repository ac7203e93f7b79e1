//! Adding: many rows at once, into a table and its indexes.

use super::by_statement;
use super::direct_write;
use super::known::Constraints;
use super::unguarded;
use super::unguarded::guarded;
use super::{METHOD, Table};
use pgrx::pg_sys;
use std::marker::PhantomData;
use std::rc::Rc;

/// The most rows that are added at once.
const ROWS_AT_ONCE: usize = 1000;

/// Adds rows to a table and its indexes, many at once.
pub(crate) struct Inserter<'table> {
    table: &'table Table,
    state: *mut pg_sys::EState,
    target: *mut pg_sys::ResultRelInfo,
    /// A copy without a reference count: slots need not be released one by one, but end with the
    /// memory context.
    shape: pg_sys::TupleDesc,
    slots: Vec<*mut pg_sys::TupleTableSlot>,
    filled: usize,
    constraints: Rc<Constraints>,
}

impl<'table> Inserter<'table> {
    /// Begins to add about `rows` rows.
    pub(crate) fn begin(table: &'table Table, rows: usize) -> Self {
        // SAFETY: the relation is open; everything is allocated in the current memory context or
        // the state's own.
        unsafe {
            pg_sys::PreventCommandIfReadOnly(c"INSERT".as_ptr());
            let state = pg_sys::CreateExecutorState();
            let target = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast();
            // No index into a range table, which does not exist: an error message would look into
            // it.
            pg_sys::InitResultRelInfo(target, table.relation, 0, std::ptr::null_mut(), 0);
            if table.is_insertable() {
                pg_sys::ExecOpenIndices(target, false);
                prepare_predicates(target);
            }
            let mut begun = Self {
                table,
                state,
                target,
                shape: pg_sys::CreateTupleDescCopy((*table.relation).rd_att),
                slots: Vec::new(),
                filled: 0,
                constraints: direct_write::constraints(table.relation),
            };
            begun.add_slots(rows.min(ROWS_AT_ONCE));
            begun
        }
    }

    fn add_slots(&mut self, count: usize) {
        let first = self.slots.len();
        self.slots.resize(first + count, std::ptr::null_mut());
        let (shape, kind) = (self.shape, &raw const pg_sys::TTSOpsHeapTuple);
        let slots = &mut self.slots[first..];
        // SAFETY: the descriptor lives as long as the slots.
        unsafe {
            guarded(|| {
                for slot in slots {
                    *slot = unguarded::MakeSingleTupleTableSlot(shape, kind);
                }
            });
        }
    }

    /// Returns the next row, all null; its by-reference values must live until `end`.
    pub(crate) fn row(&mut self) -> NewRow<'_> {
        if self.filled == ROWS_AT_ONCE {
            self.flush();
        }
        if self.filled == self.slots.len() {
            self.add_slots(1);
        }
        let slot = self.slots[self.filled];
        self.filled += 1;
        // SAFETY: a slot has a value and a flag for each column, dropped ones included; nothing
        // else writes them.
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
        if !self.table.is_insertable() {
            return self.flush_by_statement();
        }
        let slots = &mut self.slots[..self.filled];
        self.filled = 0;
        let Constraints {
            not_null,
            checks_of_others,
        } = &*self.constraints;
        let (relation, shape) = (self.table.relation, self.shape);
        let (target, state) = (self.target, self.state);
        // SAFETY: each slot has been filled with a row of the table; copies made on the way live in
        // a memory context that is emptied afterwards.
        unsafe {
            let context = pg_sys::CurrentMemoryContext;
            let expressions = pg_sys::MakePerTupleExprContext(state);
            pg_sys::CurrentMemoryContext = (*expressions).ecxt_per_tuple_memory;
            guarded(|| {
                for slot in slots.iter() {
                    form(*slot, shape);
                }
            });
            for slot in slots.iter() {
                let is_null = (**slot).tts_isnull;
                if *checks_of_others || not_null.iter().any(|&column| *is_null.add(column)) {
                    pg_sys::ExecConstraints(target, *slot, state);
                }
            }
            let add = (*(*relation).rd_tableam).multi_insert.expect(METHOD);
            let clear = pg_sys::TTSOpsHeapTuple.clear.expect(METHOD);
            guarded(|| {
                let command = unguarded::GetCurrentCommandId(true);
                let (first, count) = (slots.as_mut_ptr(), slots.len() as i32);
                add(relation, first, count, command, 0, std::ptr::null_mut());
                for slot in slots.iter() {
                    unguarded::insert_into_indexes(target, *slot, state);
                    clear(*slot);
                }
            });
            pg_sys::CurrentMemoryContext = context;
            pg_sys::MemoryContextReset((*expressions).ecxt_per_tuple_memory);
        }
    }

    /// Writes the rows by a statement: something on the table requires one, or only the server can
    /// find the partition.
    fn flush_by_statement(&mut self) {
        let count = std::mem::take(&mut self.filled);
        let width = self.table.columns.len();
        let rows: Vec<Vec<_>> = self.slots[..count]
            .iter()
            .map(|&slot| {
                // SAFETY: within the arrays of the slot.
                let value = |column| unsafe {
                    let is_null = *(*slot).tts_isnull.add(column);
                    (!is_null).then(|| *(*slot).tts_values.add(column))
                };
                (0..width).map(value).collect()
            })
            .collect();
        by_statement::insert(self.table, &rows);
    }

    /// Adds the remaining rows, and makes all visible to later commands of this transaction.
    pub(crate) fn end(mut self) {
        self.flush();
        // SAFETY: ends what `begin` began.
        unsafe {
            if self.table.is_insertable() {
                pg_sys::ExecCloseIndices(self.target);
            }
            pg_sys::FreeExecutorState(self.state);
            pg_sys::CommandCounterIncrement();
        }
    }
}

/// Makes the tuple of a filled slot. A virtual slot would first copy its values, to own them; here
/// the columns stay readable as they were set.
unsafe fn form(slot: *mut pg_sys::TupleTableSlot, shape: pg_sys::TupleDesc) {
    // SAFETY: the slot has a value and a flag for each column of the shape; the tuple is its own.
    unsafe {
        let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
        unguarded::ExecStoreHeapTuple(unguarded::heap_form_tuple(shape, values, nulls), slot, true);
        (*slot).tts_nvalid = (*shape).natts as pg_sys::AttrNumber;
    }
}

/// Compiles the conditions of partial indexes, which the server would simplify again for each
/// target: 1 % of the instructions of a job that is claimed and completed alone.
unsafe fn prepare_predicates(target: *mut pg_sys::ResultRelInfo) {
    // SAFETY: the indexes of the target are open; the relation cache keeps their conditions
    // simplified.
    unsafe {
        for index in 0..(*target).ri_NumIndices as usize {
            let info = *(*target).ri_IndexRelationInfo.add(index);
            if !(*info).ii_Predicate.is_null() {
                (*info).ii_PredicateState =
                    pg_sys::ExecInitQual((*info).ii_Predicate, std::ptr::null_mut());
            }
        }
    }
}

/// Adds entries for a row; with `summaries` only to indexes that summarize blocks, which exist from
/// version 16 on.
pub(super) unsafe fn insert_into_indexes(
    target: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
    #[cfg_attr(feature = "pg15", allow(unused_variables))] summaries: bool,
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
            summaries,
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
    /// Sets a column; a column that is not set is null.
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
