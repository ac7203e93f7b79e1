//! A second process that ends this one's programs when this one is gone, even when it was killed.
//!
//! Words: the *guard* is this binary under another name. Over a socket it learns which process
//! groups run, from the programs themselves before they begin, so that none is missed. When the
//! socket is closed, this process has ended: what still runs then gets SIGTERM, and SIGKILL after
//! the grace. The guard ends when they have ended, and at once when nothing runs.
//!
//! Nothing waits for it. A guard that was killed or stopped is replaced at once, by SIGCHLD; one
//! that hangs for another reason when it accepts no more, after some hundred messages.

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::signal::{is_there, signal};

/// What the guard is called in the list of processes; its one argument is the grace in
/// milliseconds.
const NAME: &str = "trax-guard";
/// How often it checks whether the programs have ended.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// The messages about a group: it begins, or it is gone. Five bytes, which arrive together.
const BEGINS: u8 = b'+';
const GONE: u8 = b'-';

fn message(kind: u8, group: i32) -> [u8; 5] {
    let [a, b, c, d] = group.to_le_bytes();
    [kind, a, b, c, d]
}

/// Sends a message if there is room for it at once, and returns whether there was.
fn try_send(socket: &UnixStream, message: &[u8]) -> bool {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a plain system call, allowed between fork and exec; the bytes and the socket live as
    // long as it takes.
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

/// The guard, from the side of the process that it guards.
pub(crate) struct Guard {
    process: Child,
    socket: Arc<UnixStream>,
    grace: Duration,
    /// It did not accept a message.
    must_restart: bool,
}

impl Guard {
    /// Starts the guard, with groups that run already.
    pub(crate) fn start(grace: Duration, running: &HashSet<i32>) -> std::io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(grace.as_millis().to_string())
            .current_dir("/")
            // It needs none, and others of this user could read it there.
            .env_clear()
            .process_group(0)
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // All in one message: there is room for few messages, however short.
        let all: Vec<u8> = running
            .iter()
            .flat_map(|group| message(BEGINS, *group))
            .collect();
        Ok(Guard {
            process,
            must_restart: !try_send(&ours, &all),
            socket: Arc::new(ours),
            grace,
        })
    }

    /// Starts another guard when this one was ended or hangs.
    pub(crate) fn renew(&mut self, running: &HashSet<i32>) {
        let has_ended = matches!(self.process.try_wait(), Ok(Some(_)));
        if (self.must_restart || has_ended || is_stopped(&self.process))
            && let Ok(guard) = Guard::start(self.grace, running)
        {
            std::mem::replace(self, guard).dismiss();
        }
    }

    /// Kills the guard before its socket is closed: it would end the groups that it knows, whose
    /// numbers may belong to others by now.
    fn dismiss(mut self) {
        if self.process.kill().is_ok() {
            // This only collects its exit status; without it a zombie remains.
            self.process.wait().ok();
        }
    }

    /// Returns what a program runs before it begins: it reports its new process group. This reaches
    /// the guard even when this process does not live to call [`Guard::begins`].
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

    /// Notes that a program has begun; its own message may have reached the guard before this one.
    pub(crate) fn begins(&mut self, group: i32) {
        self.send(BEGINS, group);
    }

    pub(crate) fn gone(&mut self, group: i32) {
        self.send(GONE, group);
    }

    /// Sends a message; a guard that does not accept it is replaced before the next program.
    fn send(&mut self, kind: u8, group: i32) {
        self.must_restart |= !try_send(&self.socket, &message(kind, group));
    }
}

/// Returns whether a child was stopped and does not continue.
fn is_stopped(child: &Child) -> bool {
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: writes to `seen` alone, for which all zero is a value: nothing was seen.
    unsafe {
        let mut seen: libc::siginfo_t = std::mem::zeroed();
        let asked = libc::waitid(libc::P_PID, child.id(), &raw mut seen, flags);
        asked == 0 && seen.si_pid() != 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The end of the socket ends the guard; its zombie goes with this process. An error means
        // that the guard has closed its end already.
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
    // A signal to a whole group or session ends the guarded process too; the guard has to survive
    // it to end the programs.
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: plain system call; nothing is interrupted by it.
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
        // A stopped process gets other signals only when it continues.
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
