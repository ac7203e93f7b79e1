//! A process beside this one that ends its programs when it is gone, also when it was killed.
//!
//! Words: the *guard* is this binary under another name. It hears over a socket which process
//! groups run, from the programs themselves before they begin, so that none is missed. The socket's
//! end is this process's: what still runs then gets SIGTERM, and SIGKILL after the grace. It ends
//! with them, and at once when nothing runs.
//!
//! Nobody waits for it. One that stands still takes no more after some hundred messages, and is
//! replaced like one that was ended.

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
/// How often it looks whether what it asked to end has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What is said of a group: it begins, or it is gone. Five bytes, which arrive as one.
const BEGINS: u8 = b'+';
const GONE: u8 = b'-';

fn message(kind: u8, group: i32) -> [u8; 5] {
    let [a, b, c, d] = group.to_le_bytes();
    [kind, a, b, c, d]
}

/// Says it if there is room for it at once; whether there was.
fn say(socket: &UnixStream, said: &[u8]) -> bool {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a plain system call, allowed between fork and exec; the bytes and the socket live as
    // long as it takes.
    let taken = unsafe { libc::send(socket.as_raw_fd(), said.as_ptr().cast(), said.len(), flags) };
    usize::try_from(taken).is_ok_and(|taken| taken == said.len())
}

/// The guard, as who is guarded sees it.
pub(crate) struct Guard {
    process: Child,
    socket: Arc<UnixStream>,
    grace: Duration,
    /// It was told something that it did not take.
    deaf: bool,
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
        // All at once: there is room for few messages, however short.
        let all: Vec<u8> = running
            .iter()
            .flat_map(|group| message(BEGINS, *group))
            .collect();
        Ok(Guard {
            process,
            deaf: !say(&ours, &all),
            socket: Arc::new(ours),
            grace,
        })
    }

    /// Starts another one when somebody ended it, or it stands still.
    pub(crate) fn renew(&mut self, running: &HashSet<i32>) {
        let is_needed = self.deaf || matches!(self.process.try_wait(), Ok(Some(_)));
        if is_needed && let Ok(guard) = Guard::start(self.grace, running) {
            std::mem::replace(self, guard).dismiss();
        }
    }

    /// Before its socket ends: it would end what it heard of, which may have gone and be another's
    /// by now.
    fn dismiss(mut self) {
        if self.process.kill().is_ok() && self.process.wait().is_err() {}
    }

    /// What a program does before it begins: says which group it is, the one of its own that it has
    /// just been given. Heard also when nobody lives to say [`Guard::begins`].
    pub(crate) fn announcement(
        &self,
    ) -> impl FnMut() -> std::io::Result<()> + Send + Sync + 'static {
        let socket = Arc::clone(&self.socket);
        move || {
            // SAFETY: a plain system call, allowed between fork and exec.
            let said = message(BEGINS, unsafe { libc::getpid() });
            // Without a guard it begins all the same.
            say(&socket, &said);
            Ok(())
        }
    }

    /// A program has begun; its own word may have gone to the guard before this one.
    pub(crate) fn begins(&mut self, group: i32) {
        self.tell(BEGINS, group);
    }

    pub(crate) fn gone(&mut self, group: i32) {
        self.tell(GONE, group);
    }

    /// One that does not take it is started anew before the next program.
    fn tell(&mut self, kind: u8, group: i32) {
        self.deaf |= !say(&self.socket, &message(kind, group));
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
    // Whoever ends a whole group or session of processes ends the guarded; the guard has to see to
    // its end.
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
