//! Starts processes that must not outlive their owner.
//!
//! Linux ties PR_SET_PDEATHSIG to the thread that forked, not to its process. So one thread of this
//! process, which never ends, starts all of them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Request = (Command, Sender<io::Result<Child>>);

/// Starts `command` in its own process group. The command gets SIGQUIT when this process ends.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let owner = std::process::id();
    command.process_group(0);
    // SAFETY: between fork and exec the closure only makes async-signal-safe system calls and
    // builds an error from a constant, which does not allocate.
    unsafe {
        command.pre_exec(move || {
            // PostgreSQL treats SIGQUIT as an immediate shutdown, which also ends its children.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid().unsigned_abs() != owner {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                // The caller still exists: it waits for the answer.
                answer.send(command.spawn()).ok();
            }
        });
        sender
    });
    let (answer, child) = channel();
    let gone = || io::Error::other("the thread that starts servers is gone");
    spawner.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// Sends a signal to a process that this process started and has not waited for.
pub(crate) fn signal(child: &Child, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: kill has no memory preconditions; the child is not reaped, so the pid is not reused.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
