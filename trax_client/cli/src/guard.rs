//! A process beside this one that ends its programs when it is gone, also when it was killed.
//!
//! Words: the *guard* is this binary under another name. It hears over a socket which process groups run, from the
//! programs themselves before they begin, so that none is missed. The socket's end is this process's: what still runs
//! then gets SIGTERM, and SIGKILL after the grace. It ends with them, and at once when nothing runs.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::process_group::{is_there, signal};

/// What the guard is called in the list of processes; its one argument is the grace in milliseconds.
const NAME: &str = "trax-guard";
/// How often it looks whether what it asked to end has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What is said of a group: it begins, or it is gone. Five bytes, which arrive as one.
const BEGINS: u8 = b'+';
const GONE: u8 = b'-';

fn message(kind: u8, group: i32) -> [u8; 5] {
    let [a, b, c, d] = group.to_le_bytes();
    [kind, a, b, c, d]
}

/// The guard, as who is guarded sees it.
pub(crate) struct Guard {
    process: Child,
    socket: UnixStream,
    grace: Duration,
}

impl Guard {
    /// Starts it for groups that run already.
    pub(crate) fn start(grace: Duration, running: &HashSet<i32>) -> std::io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(grace.as_millis().to_string())
            .current_dir("/")
            .process_group(0)
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let guard = Guard {
            process,
            socket: ours,
            grace,
        };
        for group in running {
            guard.tell(BEGINS, *group);
        }
        Ok(guard)
    }

    /// Starts another one when somebody ended it.
    pub(crate) fn renew(&mut self, running: &HashSet<i32>) {
        if let Ok(Some(_)) = self.process.try_wait()
            && let Ok(guard) = Guard::start(self.grace, running)
        {
            *self = guard;
        }
    }

    /// What a program does before it begins: says which group it is, the one of its own that it has just been given.
    pub(crate) fn announcement(
        &self,
    ) -> impl FnMut() -> std::io::Result<()> + Send + Sync + 'static {
        let socket = self.socket.as_raw_fd();
        // SAFETY: getpid and send are plain system calls, allowed between fork and exec; the descriptor is a copy of ours.
        move || unsafe {
            let said = message(BEGINS, libc::getpid());
            // Without a guard it begins all the same.
            libc::send(socket, said.as_ptr().cast(), said.len(), libc::MSG_NOSIGNAL);
            Ok(())
        }
    }

    pub(crate) fn gone(&self, group: i32) {
        self.tell(GONE, group);
    }

    fn tell(&self, kind: u8, group: i32) {
        // One that was ended is started anew before the next program.
        if (&self.socket).write_all(&message(kind, group)).is_err() {}
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The end of the socket ends it; the zombie is gone with this process.
        if self.socket.shutdown(std::net::Shutdown::Both).is_err() {}
    }
}

/// Runs the guard, if this process was started as one.
pub(crate) fn run_if_named() -> Option<ExitCode> {
    let mut arguments = std::env::args();
    if arguments.next()? != NAME {
        return None;
    }
    let grace = arguments.next()?.parse().ok()?;
    // Whoever ends a whole group or session of processes ends the guarded; the guard has to see to its end.
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: plain system call; nothing is interrupted by it.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
    end(heard(), Duration::from_millis(grace));
    Some(ExitCode::SUCCESS)
}

/// The groups that run when the socket ends.
fn heard() -> HashSet<i32> {
    let (mut running, mut stdin) = (HashSet::new(), std::io::stdin().lock());
    let mut said = [0; 5];
    while stdin.read_exact(&mut said).is_ok() {
        let [kind, a, b, c, d] = said;
        let group = i32::from_le_bytes([a, b, c, d]);
        if kind == BEGINS {
            running.insert(group);
        } else {
            running.remove(&group);
        }
    }
    running
}

fn end(mut running: HashSet<i32>, grace: Duration) {
    for group in &running {
        signal(*group, libc::SIGTERM);
        // One that is stopped hears nothing else.
        signal(*group, libc::SIGCONT);
    }
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline {
        running.retain(|group| is_there(*group));
        if running.is_empty() {
            return;
        }
        std::thread::sleep(LOOK);
    }
    for group in running {
        signal(group, libc::SIGKILL);
    }
}
