//! Changing: one row at a time, in place where no index contains the changed columns.

use super::by_statement;
use super::direct_write;
use super::insert::insert_into_indexes;
use super::{Table, Taken, View};
use pgrx::pg_sys;

/// Changes rows that no other transaction has locked.
pub(crate) struct Updater<'table> {
    table: &'table Table,
    /// A copy without a reference count: the slot of a new row need not be released.
    changed: *mut pg_sys::TupleTableSlot,
    locked: *mut pg_sys::TupleTableSlot,
    /// Rows are changed in place; otherwise by a statement at the end, which sets these columns of
    /// the rows in `left`.
    is_direct: bool,
    columns: Vec<usize>,
    left: Vec<(pg_sys::ItemPointerData, Vec<Option<pg_sys::Datum>>)>,
    /// For new index entries, once a row needs them.
    indexes: Option<(*mut pg_sys::EState, *mut pg_sys::ResultRelInfo)>,
}

impl<'table> Updater<'table> {
    pub(crate) fn begin(table: &'table Table) -> Self {
        // SAFETY: the relation is open; the slots live in the current memory context.
        unsafe {
            pg_sys::PreventCommandIfReadOnly(c"UPDATE".as_ptr());
            pg_sys::CheckCmdReplicaIdentity(table.relation, pg_sys::CmdType::CMD_UPDATE);
            let shape = pg_sys::CreateTupleDescCopy((*table.relation).rd_att);
            Self {
                table,
                changed: pg_sys::MakeSingleTupleTableSlot(
                    shape,
                    &raw const pg_sys::TTSOpsHeapTuple,
                ),
                locked: table.slot(),
                is_direct: table.direct.update
                    && !direct_write::constraints(table.relation).checks_of_others,
                columns: Vec::new(),
                left: Vec::new(),
                indexes: None,
            }
        }
    }

    /// Sets columns of the row at `tid`, which `view` sees, unless another transaction has locked
    /// it.
    pub(crate) fn update_if_free<const N: usize>(
        &mut self,
        tid: pg_sys::ItemPointerData,
        view: &View,
        changes: [(impl Into<usize>, Option<pg_sys::Datum>); N],
    ) -> Taken {
        let mut tid = tid;
        let mut failure = pg_sys::TM_FailureData::default();
        let mut columns = [0i32; N];
        let mut values = [pg_sys::Datum::from(0); N];
        let mut nulls = [false; N];
        for (index, (column, value)) in changes.into_iter().enumerate() {
            columns[index] = column.into() as i32 + 1;
            nulls[index] = value.is_none();
            values[index] = value.unwrap_or(pg_sys::Datum::from(0));
        }
        // The row is locked before it is changed, because the change itself would wait.
        // SAFETY: the tid is that of a row of this table, and the columns are its own.
        unsafe {
            let relation = self.table.relation;
            let command = pg_sys::GetCurrentCommandId(true);
            let found = pg_sys::table_tuple_lock(
                relation,
                &raw mut tid,
                view.snapshot,
                self.locked,
                command,
                pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
                pg_sys::LockWaitPolicy::LockWaitSkip,
                0,
                &raw mut failure,
            );
            if found != pg_sys::TM_Result::TM_Ok {
                pg_sys::ExecClearTuple(self.locked);
                return Taken::of(found);
            }
            if !self.is_direct {
                pg_sys::ExecClearTuple(self.locked);
                self.columns = columns.iter().map(|&column| column as usize - 1).collect();
                let values = values.into_iter().zip(nulls);
                let values = values.map(|(value, is_null)| (!is_null).then_some(value));
                self.left.push((tid, values.collect()));
                return Taken::Yes;
            }
            let old = pg_sys::ExecCopySlotHeapTuple(self.locked);
            let new = pg_sys::heap_modify_tuple_by_cols(
                old,
                (*self.changed).tts_tupleDescriptor,
                N as i32,
                columns.as_mut_ptr(),
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
            (*new).t_tableOid = (*relation).rd_id;
            pg_sys::ExecStoreHeapTuple(new, self.changed, true);
            (*self.changed).tts_tableOid = (*relation).rd_id;
            let mut mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
            let none = Default::default();
            let mut indexes = none;
            let result = pg_sys::table_tuple_update(
                relation,
                &raw mut tid,
                self.changed,
                command,
                view.snapshot,
                std::ptr::null_mut(),
                true,
                &raw mut failure,
                &raw mut mode,
                &raw mut indexes,
            );
            if result == pg_sys::TM_Result::TM_Ok && indexes != none {
                #[cfg(feature = "pg15")]
                self.add_to_indexes(false);
                // In place, except for indexes that summarize blocks.
                #[cfg(not(feature = "pg15"))]
                self.add_to_indexes(indexes == pg_sys::TU_UpdateIndexes::TU_Summarizing);
            }
            pg_sys::ExecClearTuple(self.changed);
            pg_sys::ExecClearTuple(self.locked);
            pg_sys::heap_freetuple(old);
            Taken::of(result)
        }
    }

    unsafe fn add_to_indexes(&mut self, summaries: bool) {
        // SAFETY: the slot holds the row that has just been stored.
        unsafe {
            let (state, target) = *self.indexes.get_or_insert_with(|| {
                let state = pg_sys::CreateExecutorState();
                let target = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast();
                pg_sys::InitResultRelInfo(target, self.table.relation, 1, std::ptr::null_mut(), 0);
                pg_sys::ExecOpenIndices(target, false);
                (state, target)
            });
            insert_into_indexes(target, self.changed, state, summaries);
        }
    }

    /// Makes the changes visible to later commands of this transaction.
    pub(crate) fn end(self) {
        if !self.left.is_empty() {
            let rows: Vec<_> = self
                .left
                .iter()
                .map(|(ctid, values)| {
                    let ctid = std::iter::once(by_statement::ctid_of(ctid));
                    ctid.chain(values.iter().copied()).collect()
                })
                .collect();
            by_statement::update(self.table, &self.columns, &rows);
        }
        // SAFETY: ends what `begin` and `add_to_indexes` began.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.locked);
            if let Some((state, target)) = self.indexes {
                pg_sys::ExecCloseIndices(target);
                pg_sys::FreeExecutorState(state);
            }
            pg_sys::CommandCounterIncrement();
        }
    }
}
