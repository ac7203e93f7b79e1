//! The exit codes of programs, beyond those that every command has.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// EX_DATAERR: the data is invalid, and a retry would fail again.
pub(crate) const DATA_ERROR: u8 = 65;
/// EX_IOERR: the token or the lease was lost meanwhile.
pub(crate) const LOST: u8 = 74;
/// EX_TEMPFAIL: try again.
pub(crate) const TEMPORARY_FAILURE: u8 = 75;
/// As in a shell: found but not executable, not found, ended by a signal.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

/// Returns the exit code of a program that has ended, as a shell has it.
pub(crate) fn of(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(number)) => signalled(number),
        (None, None) => ExitCode::FAILURE,
    }
}

pub(crate) fn signalled(number: i32) -> ExitCode {
    ExitCode::from(u8::try_from(SIGNALLED + number).unwrap_or(u8::MAX))
}

/// Returns the exit code for a program that cannot be started.
pub(crate) fn not_started(error: &io::Error) -> ExitCode {
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}
