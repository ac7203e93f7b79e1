//! What this session is called.

use pgrx::pg_sys;

/// How a session is called that does not name its worker: application name and process id.
pub(crate) fn session_name() -> String {
    let application = application_name();
    let application = if application.is_empty() {
        "session"
    } else {
        application.as_str()
    };
    // SAFETY: a plain number of this backend.
    let process = unsafe { pg_sys::MyProcPid };
    format!("{application}:{process}")
}

/// The application name of this session.
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
