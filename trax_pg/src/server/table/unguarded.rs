//! Functions of the server, for loops that run as a whole within one guard.
//!
//! A call through `pg_sys` turns an error of the server into a panic, which costs 110 instructions
//! each. Within [`guarded`] the calls here go to the server directly, as in C: an error leaves the
//! whole closure at once, which therefore must own nothing that needs dropping, and must not panic.

use pgrx::pg_sys;
use pgrx::pg_sys::{
    CommandId, Datum, EState, HeapTuple, List, ResultRelInfo, TupleDesc, TupleTableSlot,
    TupleTableSlotOps,
};

#[allow(
    clashing_extern_declarations,
    reason = "later versions take constant arrays"
)]
unsafe extern "C-unwind" {
    pub(super) fn GetCurrentCommandId(used: bool) -> CommandId;
    pub(super) fn heap_form_tuple(
        shape: TupleDesc,
        values: *mut Datum,
        nulls: *mut bool,
    ) -> HeapTuple;
    pub(super) fn MakeSingleTupleTableSlot(
        shape: TupleDesc,
        kind: *const TupleTableSlotOps,
    ) -> *mut TupleTableSlot;
    pub(super) fn ExecStoreHeapTuple(
        tuple: HeapTuple,
        slot: *mut TupleTableSlot,
        is_owned: bool,
    ) -> *mut TupleTableSlot;
    pub(super) fn slot_getsomeattrs_int(slot: *mut TupleTableSlot, columns: i32);
    #[cfg(feature = "pg15")]
    fn ExecInsertIndexTuples(
        target: *mut ResultRelInfo,
        slot: *mut TupleTableSlot,
        state: *mut EState,
        is_update: bool,
        no_error: bool,
        conflict: *mut bool,
        arbiters: *mut List,
    ) -> *mut List;
    #[cfg(not(feature = "pg15"))]
    fn ExecInsertIndexTuples(
        target: *mut ResultRelInfo,
        slot: *mut TupleTableSlot,
        state: *mut EState,
        is_update: bool,
        no_error: bool,
        conflict: *mut bool,
        arbiters: *mut List,
        summaries: bool,
    ) -> *mut List;
}

/// Runs `calls`, which may only call functions of the server, and turns their errors into a panic.
pub(super) unsafe fn guarded<T>(calls: impl FnOnce() -> T) -> T {
    // SAFETY: the caller follows the rules at the head of this file.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(calls) }
}

/// Adds entries for a row that has just been added to the target's table.
pub(super) unsafe fn insert_into_indexes(
    target: *mut ResultRelInfo,
    slot: *mut TupleTableSlot,
    state: *mut EState,
) {
    // SAFETY: as the caller says.
    unsafe {
        ExecInsertIndexTuples(
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
