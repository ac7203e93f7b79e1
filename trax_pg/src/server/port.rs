//! The server's record of the connection of a session, for a session without a client.

use pgrx::pg_sys;
use std::ffi::c_char;

/// More than the size of a `Port` in any version.
const PORT_BYTES: usize = 16 * 1024;

/// The first members of a `Port`, which the bindings lack.
#[repr(C)]
struct Head {
    socket: pg_sys::pgsocket,
    does_not_block: bool,
    protocol: u32,
    local: Address,
    remote: Address,
    remote_host: *mut c_char,
    remote_host_name: *mut c_char,
    remote_host_name_codes: [i32; 2],
    remote_port: *mut c_char,
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    accepts: std::ffi::c_int,
    #[cfg(feature = "pg18")]
    local_host: [c_char; 64],
    database_name: *mut c_char,
    user_name: *mut c_char,
}

/// A `sockaddr_storage`, which begins with its family, and its length.
#[repr(C, align(8))]
struct Address {
    family: u16,
    rest: [u8; 134],
}

/// The family of a Unix socket, about which the server needs no address.
const AF_UNIX: u16 = 1;

/// Gives the session a connection with only the database and the role, without TLS, address and
/// socket: functions in C read it, and would crash without it; log lines begin with both names.
pub(crate) fn begin() {
    // SAFETY: in a transaction. The memory lasts as long as the process. The server itself begins
    // with all zero, and takes a null host or address as unknown.
    unsafe {
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
        let head = pg_sys::palloc0(PORT_BYTES).cast::<Head>();
        (*head).socket = -1;
        (*head).local.family = AF_UNIX;
        (*head).remote.family = AF_UNIX;
        (*head).database_name = pg_sys::get_database_name(pg_sys::MyDatabaseId);
        (*head).user_name = pg_sys::GetUserNameFromId(pg_sys::GetSessionUserId(), true);
        pg_sys::MyProcPort = head.cast();
        pg_sys::CurrentMemoryContext = before;
    }
}
