//! A guard process that ends the programs of this process when this process ends, even by SIGKILL.
//!
//! The *guard* is this binary under another name. Programs report their process group to it over a
//! socket before they begin, so that none is missed. When the socket closes, this process has
//! ended: remaining groups then get SIGTERM, and SIGKILL after the grace period. The guard ends
//! when they have ended, and at once if there are none.
//!
//! Nothing waits for the guard. A guard that was killed or stopped is replaced at once, on SIGCHLD;
//! one that hangs for another reason is replaced when it accepts no more messages, after some
//! hundred of them.

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::signal::{is_there, signal};

/// The guard's name in the list of processes. Its argument is the grace period in milliseconds.
const NAME: &str = "trax-guard";
/// How often the guard checks whether the programs have ended.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// The message kinds: a group begins, or is gone. A message has five bytes, which arrive together.
const BEGINS: u8 = b'+';
const GONE: u8 = b'-';

fn message(kind: u8, group: i32) -> [u8; 5] {
    let [a, b, c, d] = group.to_le_bytes();
    [kind, a, b, c, d]
}

/// Sends a message without blocking. Returns whether there was room for it.
fn try_send(socket: &UnixStream, message: &[u8]) -> bool {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a plain system call, allowed between fork and exec; the bytes and the socket outlive
    // it.
    let taken = unsafe {
        libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            flags,
        )
    };
    usize::try_from(taken).is_ok_and(|taken| taken == message.len())
}

/// The guard as seen by the process that it guards.
pub(crate) struct Guard {
    process: Child,
    socket: Arc<UnixStream>,
    grace: Duration,
    /// The guard did not accept a message.
    must_restart: bool,
}

impl Guard {
    /// Starts the guard, with the groups that already run.
    pub(crate) fn start(grace: Duration, running: &HashSet<i32>) -> std::io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        // Before the guard exists, so that it knows the groups even if this process ends now. In
        // one message, as the socket holds few messages, however short.
        let all: Vec<u8> = running
            .iter()
            .flat_map(|group| message(BEGINS, *group))
            .collect();
        let has_room = try_send(&ours, &all);
        let process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(grace.as_millis().to_string())
            .current_dir("/")
            // The guard needs no environment, and other processes of this user could read it there.
            .env_clear()
            .process_group(0)
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Guard {
            process,
            must_restart: !has_room,
            socket: Arc::new(ours),
            grace,
        })
    }

    /// Starts another guard if this one has ended or hangs.
    pub(crate) fn renew(&mut self, running: &HashSet<i32>) {
        let has_ended = matches!(self.process.try_wait(), Ok(Some(_)));
        if (self.must_restart || has_ended || is_stopped(&self.process))
            && let Ok(guard) = Guard::start(self.grace, running)
        {
            std::mem::replace(self, guard).dismiss();
        }
    }

    /// Kills the guard before its socket closes. Otherwise it would end the groups it knows, whose
    /// numbers may have been reused.
    fn dismiss(mut self) {
        if self.process.kill().is_ok() {
            // Collects the exit status, so that no zombie remains.
            self.process.wait().ok();
        }
    }

    /// Returns the function that a program runs before exec to report its new process group. The
    /// report reaches the guard even if this process ends before it calls [`Guard::begins`].
    pub(crate) fn announcement(
        &self,
    ) -> impl FnMut() -> std::io::Result<()> + Send + Sync + 'static {
        let socket = Arc::clone(&self.socket);
        move || {
            // SAFETY: a plain system call, allowed between fork and exec.
            let message = message(BEGINS, unsafe { libc::getpid() });
            // The program begins even without a guard.
            try_send(&socket, &message);
            Ok(())
        }
    }

    /// Records that a program has begun. Its own message may have reached the guard already.
    pub(crate) fn begins(&mut self, group: i32) {
        self.send(BEGINS, group);
    }

    pub(crate) fn gone(&mut self, group: i32) {
        self.send(GONE, group);
    }

    /// Sends a message. A guard that does not accept it is replaced before the next program.
    fn send(&mut self, kind: u8, group: i32) {
        self.must_restart |= !try_send(&self.socket, &message(kind, group));
    }
}

/// Returns whether a child is stopped.
fn is_stopped(child: &Child) -> bool {
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: writes only to `seen`, for which all zeros is a valid value: no event.
    unsafe {
        let mut seen: libc::siginfo_t = std::mem::zeroed();
        let asked = libc::waitid(libc::P_PID, child.id(), &raw mut seen, flags);
        asked == 0 && seen.si_pid() != 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Closing the socket ends the guard; its zombie goes with this process. An error means that
        // the guard has already closed its end.
        self.socket.shutdown(std::net::Shutdown::Both).ok();
    }
}

/// Runs the guard, if this process was started as one.
pub(crate) fn run_if_named() -> Option<ExitCode> {
    let mut arguments = std::env::args();
    if arguments.next()? != NAME {
        return None;
    }
    let grace = arguments.next()?.parse().ok()?;
    // A signal to the whole group or session also ends the guarded process; the guard must survive
    // it to end the programs.
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a plain system call that interrupts nothing.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
    end(read_groups(), Duration::from_millis(grace));
    Some(ExitCode::SUCCESS)
}

/// Reads messages until the socket is closed, and returns the groups that run then.
fn read_groups() -> HashSet<i32> {
    let (mut running, mut stdin) = (HashSet::new(), std::io::stdin().lock());
    let mut message = [0; 5];
    while stdin.read_exact(&mut message).is_ok() {
        let [kind, a, b, c, d] = message;
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
        // A stopped process receives other signals only once it continues.
        signal(*group, libc::SIGCONT);
    }
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline {
        running.retain(|group| is_there(*group));
        if running.is_empty() {
            return;
        }
        std::thread::sleep(CHECK_PERIOD);
    }
    for group in running {
        signal(group, libc::SIGKILL);
    }
}
