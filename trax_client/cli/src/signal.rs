//! Signals to process groups.

use trax_terminal::print;

pub(crate) fn signal(group: i32, number: i32) {
    if let Err(error) = send(group, number) {
        // ESRCH: the group has just ended.
        if error.raw_os_error() != Some(libc::ESRCH) {
            print::log(
                "trax",
                &format!("signal {number} to process group {group}: {error}"),
            );
        }
    }
}

/// Returns whether a group still has processes, including zombies.
pub(crate) fn is_there(group: i32) -> bool {
    send(group, 0).is_ok()
}

/// Returns whether a process of a group still runs. A process that has ended remains as a zombie
/// until its parent reaps it, which the first process of a container may never do.
pub(crate) fn is_running(group: i32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    processes.flatten().any(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // The program's name, in parentheses, may contain any character.
        let mut fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let (state, its_group) = (fields.next(), fields.nth(1));
        its_group.and_then(|id| id.parse().ok()) == Some(group) && !matches!(state, Some("Z" | "X"))
    })
}

/// Sends a signal; 0 only checks whether the group exists.
fn send(group: i32, number: i32) -> std::io::Result<()> {
    // SAFETY: kill has no memory preconditions; the group was created for one program only.
    match unsafe { libc::kill(-group, number) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
