//! The foreign-data wrapper of `trax.new_job`: the functions that the server calls.

use super::{COLUMNS, Gathered};
use crate::access_scope;
use crate::access_scope::Object;
use crate::error::{Error, Result};
use crate::server::call::sql_function;
use crate::server::rights::with_rights_of;
use crate::server::spi;
use crate::server::spi::attribute;
use pgrx::{PgMemoryContexts, PgSqlErrorCode, pg_guard, pg_sys};
use std::ffi::CStr;

sql_function!(
    trax_new_job_handler,
    pg_finfo_trax_new_job_handler,
    |_call| {
        // SAFETY: a node in the current memory context, as the server expects.
        unsafe {
            let routine =
                pg_sys::palloc0(size_of::<pg_sys::FdwRoutine>()).cast::<pg_sys::FdwRoutine>();
            *routine = pg_sys::FdwRoutine {
                type_: pg_sys::NodeTag::T_FdwRoutine,
                GetForeignRelSize: Some(refuse_to_read),
                BeginForeignModify: Some(begin_modify),
                ExecForeignInsert: Some(insert),
                EndForeignModify: Some(end),
                BeginForeignInsert: Some(begin_insert),
                EndForeignInsert: Some(end),
                IsForeignRelUpdatable: Some(may_update),
                ..Default::default()
            };
            Ok(pg_sys::Datum::from(routine))
        }
    }
);

fn or_raise<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| error.raise())
}

/// Returns an error for reads of the table: SELECT, UPDATE, DELETE. Their planning begins here.
#[pg_guard]
unsafe extern "C-unwind" fn refuse_to_read(
    _root: *mut pg_sys::PlannerInfo,
    _relation: *mut pg_sys::RelOptInfo,
    _oid: pg_sys::Oid,
) {
    Error::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        "trax.new_job only takes new jobs",
    )
    .detail(
        "Its rows become jobs when they are inserted, and cannot be read, updated or deleted here.",
    )
    .hint("See jobs with: select * from trax.job; cancel one with: select trax.cancel(job_id)")
    .raise()
}

#[pg_guard]
unsafe extern "C-unwind" fn may_update(_relation: pg_sys::Relation) -> i32 {
    1 << pg_sys::CmdType::CMD_INSERT
}

/// Begins an INSERT into the table itself.
#[pg_guard]
unsafe extern "C-unwind" fn begin_modify(
    statement: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
    _private: *mut pg_sys::List,
    _subplan: i32,
    flags: i32,
) {
    if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 == 0 {
        // SAFETY: called by the server with its own arguments.
        or_raise(unsafe { begin(statement, target) });
    }
}

/// Begins a COPY, or rows that a partitioned table routes here.
#[pg_guard]
unsafe extern "C-unwind" fn begin_insert(
    statement: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
) {
    // SAFETY: called by the server with its own arguments.
    or_raise(unsafe { begin(statement, target) });
}

unsafe fn begin(
    statement: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
) -> Result<()> {
    // SAFETY: the server passes a statement and an open relation; COPY has no plan. The rows are
    // dropped with the memory of the statement, also after an error.
    unsafe {
        let plan = (*statement).ps.plan.cast::<pg_sys::ModifyTable>();
        if !plan.is_null() {
            refuse_clauses(plan)?;
        }
        let relation = (*target).ri_RelationDesc;
        require_columns(relation)?;
        let memory = (*(*statement).ps.state).es_query_cxt;
        let batch = pg_sys::AllocSetContextCreateInternal(
            memory,
            c"trax new jobs".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let owner = (*(*relation).rd_rel).relowner;
        let user = checked_as(statement, target);
        let object = Object::Table((*relation).rd_id);
        let scope = with_rights_of(owner, || {
            spi::connected(|spi| Ok(access_scope::of(spi, user, object)))
        })?;
        let gathered = Gathered::new(owner, scope, batch);
        let gathered = PgMemoryContexts::For(memory).leak_and_drop_on_delete(gathered);
        (*target).ri_FdwState = gathered.cast();
        Ok(())
    }
}

/// Returns the role whose right to insert the statement uses: a view's owner if it goes through
/// one.
unsafe fn checked_as(
    statement: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
) -> pg_sys::Oid {
    // SAFETY: the server passes a statement that begins and its target.
    unsafe {
        let state = (*statement).ps.state;
        #[cfg(feature = "pg15")]
        let user = {
            let index = (*target).ri_RangeTableIndex;
            if index > 0 {
                let entry = pg_sys::list_nth((*state).es_range_table, index as i32 - 1);
                (*entry.cast::<pg_sys::RangeTblEntry>()).checkAsUser
            } else {
                pg_sys::InvalidOid
            }
        };
        #[cfg(not(feature = "pg15"))]
        let user = pg_sys::ExecGetResultRelCheckAsUser(target, state);
        if user == pg_sys::InvalidOid {
            pg_sys::GetUserId()
        } else {
            user
        }
    }
}

unsafe fn refuse_clauses(plan: *const pg_sys::ModifyTable) -> Result<()> {
    let refused = |what: &str| {
        Error::new(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("trax.new_job does not support {what}"),
        )
    };
    // SAFETY: the plan of the statement that begins.
    unsafe {
        if !(*plan).returningLists.is_null() {
            return Err(refused("RETURNING")
                .detail("The rows become jobs in batches, after they have been returned.")
                .hint("Get ids with: select trax.enqueue(task, input) from ..."));
        }
        if (*plan).onConflictAction != pg_sys::OnConflictAction::ONCONFLICT_NONE {
            return Err(refused("ON CONFLICT")
                .detail("A row whose unique_key is alive queues nothing anyway.")
                .hint("Leave out ON CONFLICT."));
        }
    }
    Ok(())
}

/// Checks that the table has this library's columns: a superuser can create others with this
/// wrapper, or alter it.
unsafe fn require_columns(relation: pg_sys::Relation) -> Result<()> {
    // SAFETY: the descriptor of an open relation has as many attributes as it says.
    let is_as_known = unsafe {
        let shape = (*relation).rd_att;
        let width = (*shape).natts as usize;
        width >= COLUMNS.len()
            && COLUMNS.iter().enumerate().all(|(index, (name, oid, _))| {
                let attribute = attribute(shape, index);
                (*attribute).atttypid == *oid
                    && CStr::from_ptr((*attribute).attname.data.as_ptr()) == *name
            })
            // A column that was added and dropped again keeps its position.
            && (COLUMNS.len()..width).all(|index| (*attribute(shape, index)).attisdropped)
    };
    if is_as_known {
        return Ok(());
    }
    Err(
        Error::wrong_state("the columns of the foreign table are not those of trax.new_job")
            .detail("The columns must be exactly those of trax.new_job, in the same order and of the same types.")
            .hint("Insert into trax.new_job; if a column was added to that, drop the column again."),
    )
}

#[pg_guard]
unsafe extern "C-unwind" fn insert(
    _state: *mut pg_sys::EState,
    target: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    _plan_slot: *mut pg_sys::TupleTableSlot,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: `begin` has stored the rows there and has checked the columns of the slot.
    unsafe {
        let gathered = &mut *(*target).ri_FdwState.cast::<Gathered>();
        pg_sys::slot_getallattrs(slot);
        let row = std::array::from_fn(|index| {
            (!*(*slot).tts_isnull.add(index)).then(|| *(*slot).tts_values.add(index))
        });
        or_raise(gathered.take(&row));
    }
    slot
}

#[pg_guard]
unsafe extern "C-unwind" fn end(_state: *mut pg_sys::EState, target: *mut pg_sys::ResultRelInfo) {
    // SAFETY: null when nothing has begun; otherwise the rows that `begin` has stored there.
    if let Some(gathered) = unsafe { (*target).ri_FdwState.cast::<Gathered>().as_mut() } {
        or_raise(gathered.flush());
    }
}
