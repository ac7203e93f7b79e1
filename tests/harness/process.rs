//! Child processes of a test: they end with the test, and their output is kept.

use crate::session::Session;
use crate::{PATIENCE, eventually};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running program.
pub struct Process {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    readers: [JoinHandle<()>; 2],
}

/// The time to wait for output after the program's end; a child may keep its output open.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Process {
    /// Starts a program; collects its standard output and standard error.
    pub fn start(mut command: Command) -> Self {
        // A separate process group, killed when this value is dropped, since a program may leave
        // children.
        command.process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let output = Arc::new(Mutex::new(Vec::new()));
        let readers = [
            gather(child.stdout.take(), &output),
            gather(child.stderr.take(), &output),
        ];
        Process {
            child,
            output,
            readers,
        }
    }

    /// The process id.
    pub fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id is small")
    }

    /// The output so far.
    pub fn output(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until the program has written `text`; returns all its output.
    pub async fn says(&self, text: &str, limit: Duration) -> String {
        eventually(&format!("the output {text:?}"), limit, async || {
            let output = self.output();
            if output.contains(text) {
                Ok(output)
            } else {
                Err(output)
            }
        })
        .await
    }

    /// Waits for the program's end and for the rest of its output.
    pub async fn ends(&mut self, limit: Duration) -> ExitStatus {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                self.is_read().await;
                return status;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "the program did not end within {limit:?}; it said: {}",
                self.output()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn is_read(&self) {
        let deadline = tokio::time::Instant::now() + LAST_WORDS;
        while !self.readers.iter().all(JoinHandle::is_finished)
            && tokio::time::Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group no longer exists if all its processes have ended.
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.child.id())])
            .stderr(Stdio::null())
            .status()
            .ok();
        if self.child.kill().is_ok() {
            // Reaps the process.
            self.child.wait().ok();
        }
    }
}

fn gather(
    pipe: Option<impl Read + Send + 'static>,
    output: &Arc<Mutex<Vec<u8>>>,
) -> JoinHandle<()> {
    let (mut pipe, output) = (pipe.expect("it is piped"), Arc::clone(output));
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut piece) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.extend_from_slice(&piece[..length]);
        }
    })
}

/// Sends a signal (`KILL`, `TERM`) to a process that this test or one of its servers started.
pub fn send_signal(signal: &str, pid: i32) {
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -{signal} {pid}"))
        .status()
        .expect("sh runs");
    assert!(
        status.success(),
        "signal {signal} could not be sent to {pid}"
    );
}

/// A process that is stopped until this is dropped, since a server with a stopped process cannot
/// shut down.
pub struct Halted(i32);

impl Halted {
    pub fn new(pid: i32) -> Self {
        send_signal("STOP", pid);
        Self(pid)
    }

    /// Stops a process of the server while it waits for work and holds no lock that others need.
    pub async fn asleep(s: &Session, pid: i32) -> Self {
        Self::asleep_in(s, pid, "Extension").await
    }

    /// Stops a process while its wait event has this type.
    pub async fn asleep_in(s: &Session, pid: i32, wait: &str) -> Self {
        let waits =
            format!("select wait_event_type = '{wait}' from pg_stat_activity where pid = {pid}");
        eventually("a process that sleeps", PATIENCE, async || {
            let halted = Halted::new(pid);
            // The query itself needs locks that the process may hold.
            match tokio::time::timeout(Duration::from_secs(1), s.get(&waits)).await {
                Ok(sleeps) if sleeps == "t" => Ok(halted),
                Ok(_) => Err("awake".to_owned()),
                Err(_) => Err("it holds a lock".to_owned()),
            }
        })
        .await
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        send_signal("CONT", self.0);
    }
}

/// Whether a process exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    })
}

/// Returns the living children of a process whose names begin with `name`.
pub fn children(parent: i32, name: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("processes can be listed");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        let of_parent = rest.split(' ').nth(1) == Some(&parent.to_string());
        let called = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        of_parent && is_alive(*pid) && called.starts_with(name.as_bytes())
    })
    .collect()
}

/// A process started by a child of this test, which is killed even if the test fails.
pub struct Orphan(pub i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        if is_alive(self.0) {
            send_signal("KILL", self.0);
        }
    }
}

/// Runs a program to its end; returns its exit code, standard output and standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} could not be started: {error}"));
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Runs a program that must succeed without error output; returns its standard output.
pub fn run_quietly(command: &mut Command) -> String {
    let (code, output, errors) = run(command);
    assert_eq!(
        (code, errors.as_str()),
        (Some(0), ""),
        "{command:?} said on standard output: {output}"
    );
    output
}

/// The `trax` binary: `TRAX_BIN`, or the one beside the tests in the target directory.
pub fn trax_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("TRAX_BIN") {
        return named.into();
    }
    let tests = std::env::current_exe().expect("a process knows its program");
    // target/debug/deps/trax-0123456789abcdef
    let built = tests
        .parent()
        .and_then(Path::parent)
        .expect("tests are in a target directory")
        .join("trax");
    assert!(
        built.exists(),
        "{} is missing. Type: cargo build -p trax_cli\nor name another one in TRAX_BIN.",
        built.display()
    );
    built
}

/// A directory for the files of one test, which the servers' account can also use; removed when
/// this value is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("trax-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory can be made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))
            .expect("its maker may change it");
        Scratch(path)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}
