//! Signals to process groups.

use trax_terminal::print;

pub(crate) fn signal(group: i32, number: i32) {
    if let Err(error) = send(group, number) {
        // ESRCH: it has just ended.
        if error.raw_os_error() != Some(libc::ESRCH) {
            print::log(
                "trax",
                &format!("signal {number} to process group {group}: {error}"),
            );
        }
    }
}

/// Returns whether anything of a group is left.
pub(crate) fn is_there(group: i32) -> bool {
    send(group, 0).is_ok()
}

/// Sends a signal; 0 asks whether anybody is there.
fn send(group: i32, number: i32) -> std::io::Result<()> {
    // SAFETY: kill has no memory preconditions; the group was made for one program alone.
    match unsafe { libc::kill(-group, number) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
