//! Which process this is, of which database, and what its session is called.

use pgrx::pg_sys;

/// Returns the process id of this process.
pub(crate) fn my_pid() -> i32 {
    // SAFETY: a plain number, set before any code of the library runs.
    unsafe { pg_sys::MyProcPid }
}

/// Returns the database that this process is connected to.
pub(crate) fn my_database() -> pg_sys::Oid {
    // SAFETY: a plain number.
    unsafe { pg_sys::MyDatabaseId }
}

/// Returns how a session is called that does not name its worker: application name and process id.
pub(crate) fn session_name() -> String {
    let application = application_name();
    let application = if application.is_empty() {
        "session"
    } else {
        application.as_str()
    };
    format!("{application}:{}", my_pid())
}

/// Returns the application name of this session.
pub(crate) fn application_name() -> String {
    // SAFETY: a C string of this backend, or null.
    unsafe {
        if pg_sys::application_name.is_null() {
            return String::new();
        }
        std::ffi::CStr::from_ptr(pg_sys::application_name)
            .to_string_lossy()
            .into_owned()
    }
}
