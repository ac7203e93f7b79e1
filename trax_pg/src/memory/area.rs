//! Areas of shared memory that a process finds without a lock.

use pgrx::PgSharedMemoryInitialization;
use pgrx::pg_sys;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An area of shared memory with a value of `T`. The postmaster finds it, initializes it at each
/// start of the server, and every process inherits its address.
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

    /// Describes an area of a type for which all zeros are a valid, empty value.
    pub(super) const fn zeroed(name: &'static CStr) -> Self {
        Self::new(name, size_of::<T>, zero)
    }

    /// Returns its address; null without shared memory.
    pub(super) fn start(&self) -> *mut T {
        self.start.load(Ordering::Relaxed)
    }

    /// Returns its value; `None` without shared memory.
    pub(super) fn get(&self) -> Option<&'static T> {
        // SAFETY: null or a value, which lives as long as the server.
        unsafe { self.start().as_ref() }
    }
}

/// Sets all bytes of a value to zero.
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
        // SAFETY: called from the hook in the postmaster, before any other process uses the area,
        // which has room for the value.
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
