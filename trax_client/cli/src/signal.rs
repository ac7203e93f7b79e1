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

/// Returns whether a process of a group still runs. One that has ended is there until its parent
/// takes note, and the first process of a container may never do.
pub(crate) fn is_running(group: i32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    processes.flatten().any(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // The name of the program, in brackets, may have anything in it.
        let mut fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let (state, its_group) = (fields.next(), fields.nth(1));
        its_group.and_then(|id| id.parse().ok()) == Some(group) && !matches!(state, Some("Z" | "X"))
    })
}

/// Sends a signal; 0 asks whether anybody is there.
fn send(group: i32, number: i32) -> std::io::Result<()> {
    // SAFETY: kill has no memory preconditions; the group was made for one program alone.
    match unsafe { libc::kill(-group, number) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
