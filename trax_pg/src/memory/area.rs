//! A part of shared memory whose readers need no lock to find it.

use pgrx::PgSharedMemoryInitialization;
use pgrx::pg_sys;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Found by the postmaster and inherited by every process; initialized again when the server
/// starts.
pub(super) struct Area<T: 'static> {
    name: &'static CStr,
    bytes: fn() -> usize,
    begin: unsafe fn(*mut T),
    start: AtomicPtr<T>,
}

impl<T: 'static> Area<T> {
    /// Describes an area of `bytes`; `begin` writes a valid, empty value of it.
    pub(super) const fn new(
        name: &'static CStr,
        bytes: fn() -> usize,
        begin: unsafe fn(*mut T),
    ) -> Self {
        Self {
            name,
            bytes,
            begin,
            start: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Describes an area of a type for which all zero is valid, and empty.
    pub(super) const fn zeroed(name: &'static CStr) -> Self {
        Self::new(name, size_of::<T>, zero)
    }

    /// Returns its start; null without shared memory.
    pub(super) fn start(&self) -> *mut T {
        self.start.load(Ordering::Relaxed)
    }

    /// Returns its value; `None` without shared memory.
    pub(super) fn get(&self) -> Option<&'static T> {
        // SAFETY: null or a value, which lives as long as the server.
        unsafe { self.start().as_ref() }
    }
}

/// Makes all of a value zero.
pub(super) unsafe fn zero<T>(value: *mut T) {
    // SAFETY: passed on to the caller: there is room for one value.
    unsafe { value.write_bytes(0, 1) };
}

impl<T: 'static> PgSharedMemoryInitialization for Area<T> {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: called from the hook.
        unsafe { pg_sys::RequestAddinShmemSpace((self.bytes)()) }
    }

    unsafe fn on_shmem_startup(&'static self, _value: ()) {
        let mut found = false;
        // SAFETY: called from the hook in the postmaster, which is alone; there is room for it.
        unsafe {
            let name = self.name.as_ptr();
            let start = pg_sys::ShmemInitStruct(name, (self.bytes)(), &raw mut found).cast::<T>();
            if !found {
                (self.begin)(start);
            }
            self.start.store(start, Ordering::Relaxed);
        }
    }
}
