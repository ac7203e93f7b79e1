//! This process: its id, database and role, the name of its session, and its client.

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

/// Returns whether this server is a standby.
pub(crate) fn is_standby() -> bool {
    // SAFETY: reads a flag of the server.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// Returns the role whose rights apply now.
pub(crate) fn my_user() -> pg_sys::Oid {
    // SAFETY: a plain number, in a session.
    unsafe { pg_sys::GetUserId() }
}

/// Returns the socket of this session's client, if it has one.
pub(crate) fn client_socket() -> Option<pg_sys::pgsocket> {
    // SAFETY: a port begins with its socket, in every version that is supported.
    unsafe {
        let remote = pg_sys::whereToSendOutput == pg_sys::CommandDest::DestRemote
            && !pg_sys::MyProcPort.is_null();
        remote.then(|| *pg_sys::MyProcPort.cast::<pg_sys::pgsocket>())
    }
}

/// Returns whether the server has read more from this session's client than the message that it is
/// executing.
pub(crate) fn client_has_sent() -> bool {
    unsafe extern "C-unwind" {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        fn pq_buffer_has_data() -> bool;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        fn pq_buffer_remaining_data() -> isize;
    }
    // SAFETY: functions of the server that look at a buffer of this process.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pq_buffer_has_data();
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pq_buffer_remaining_data() > 0;
    }
}

/// Ends this session if its client is gone, which a session that waits and reads nothing would not
/// notice.
pub(crate) fn end_if_client_is_gone() {
    unsafe extern "C-unwind" {
        fn pq_check_connection() -> bool;
    }
    // SAFETY: a function of the server that checks the socket, for a session with a client.
    unsafe {
        if client_socket().is_some()
            && !pg_sys::ffi::pg_guard_ffi_boundary(|| pq_check_connection())
        {
            pg_sys::ClientConnectionLost = 1;
            pg_sys::InterruptPending = 1;
        }
    }
    pgrx::check_for_interrupts!();
}

/// Returns the name of a session that does not name its worker: application name and process id.
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
