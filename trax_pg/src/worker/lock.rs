//! The lock that says which process is the scheduler of a database.
//!
//! It lives in the advisory lock space under a class that no SQL function can reach, so that no
//! client takes it by accident or in malice. The truth about "already running" with or without
//! shared memory: it is gone when the process is.

use super::my_database;
use pgrx::pg_sys;

/// SQL's advisory locks have class 1 and 2 in this field.
const CLASS: u16 = 0x7472;

fn tag() -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: my_database().to_u32(),
        locktag_field2: 0,
        locktag_field3: 0,
        locktag_field4: CLASS,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Takes the lock until this process ends; false when another process has it.
pub(super) fn take() -> bool {
    // SAFETY: a whole tag; without waiting, so that nothing is raised but for want of memory.
    unsafe {
        pg_sys::LockAcquire(&tag(), pg_sys::ExclusiveLock as i32, true, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}

/// Whether some process has the lock.
pub(super) fn is_taken() -> bool {
    let mode = pg_sys::ShareLock as i32;
    // SAFETY: as above; what was taken is given back at once.
    unsafe {
        if pg_sys::LockAcquire(&tag(), mode, false, true)
            == pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
        {
            return true;
        }
        pg_sys::LockRelease(&tag(), mode, false);
    }
    false
}
