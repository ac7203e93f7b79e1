//! The worker processes of a campaign: three in Rust, one in Python, one that runs a program for
//! each job, and one that uses psql alone. For a router: those in Rust and the one that runs a
//! program.

use crate::fact::Execution;
use crate::journal::executions;
use crate::testbed::{DATABASE, OTHERS, POOLER, Testbed};
use harness::process::{Process, Scratch, is_alive, send_signal, trax_binary};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workers in Rust.
pub(crate) const RUST: [&str; 3] = ["rust-0", "rust-1", "rust-2"];
/// The worker in Python.
const PYTHON: &str = "python";
/// The worker that runs a program for each job.
const EXEC: &str = "exec";
/// The program that the `exec` worker runs; it writes its log before it ends.
const EXECUTED: &str = r#"input=$(cat)
nonce=$(printf %s "$input" | sed -E 's/.*"nonce": *"([^"]*)".*/\1/')
note() { echo "$1 $(date +%s%6N) $TRAX_JOB_ID $TRAX_ATTEMPT $nonce $2" >> "$CHAOS_LOG"; }
note B -
trap 'note E released; exit 143' TERM
sleep 0.1
note E ok
printf %s "$input""#;
/// The additions that make the psql example write a log.
const LOGGING: [(&str, &str); 3] = [
    (
        "stopping='' over='' child=''\n",
        r#"stopping='' over='' child='' id=0 attempt=0 nonce=-
note() { echo "$1 $(date +%s%6N) $id $attempt $nonce $2" >> "$CHAOS_LOG"; }
note S -
noted() {
    nonce=$(sed -E 's/.*"nonce": *"([^"]*)".*/\1/' <<<"$input")
    note B -
    run_task <<<"$input" && note E ok
}
"#,
    ),
    (
        "run_task <<<\"$input\" >\"$said\" 2>&1",
        "noted >\"$said\" 2>&1",
    ),
    ("exit 143' TERM", "note E released; exit 143' TERM"),
];

/// The workers whose handlers write a log, and for which a campaign waits.
pub(crate) const LOGGED: [&str; 4] = [RUST[0], RUST[1], RUST[2], PYTHON];

/// A member of the fleet; if its process dies, another takes its name.
struct Member {
    name: String,
    command: Box<dyn Fn() -> Command + Send>,
    log: Option<PathBuf>,
    process: Process,
    /// The output of the processes that died, from their start.
    said: Vec<String>,
}

/// All worker processes.
pub(crate) struct Fleet {
    members: Vec<Member>,
    _files: Scratch,
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// The psql example, with a log.
fn logging_script(folder: &Path) -> PathBuf {
    let path = root().join("trax_client/examples/psql/worker.sh");
    let mut text = std::fs::read_to_string(path).expect("the example is there");
    for (from, to) in LOGGING {
        assert_eq!(text.matches(from).count(), 1, "{from:?} is in the example");
        text = text.replace(from, to);
    }
    let script = folder.join("worker.sh");
    std::fs::write(&script, text).expect("a file can be written");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, open).expect("its maker may change it");
    script
}

/// A command that the kernel kills when this process ends.
fn tied(program: &Path) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// How a worker process finds its jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Directly in the database of its URL.
    Straight,
    /// In the shards of the router of its URL.
    ByRouter,
}

/// A worker of the Rust library.
fn rust(name: &str, url: String, way: Way, files: &Path) -> Member {
    let this = std::env::current_exe().expect("a process knows its program");
    let log = files.join(name);
    let (to, called) = (log.clone(), name.to_owned());
    let command = move || {
        let mut command = tied(&this);
        command.arg("worker").env("CHAOS_URL", &url);
        command.env("CHAOS_LOG", &to).env("CHAOS_NAME", &called);
        if way == Way::ByRouter {
            command.env("CHAOS_ROUTER", "");
        }
        command
    };
    Member::new(name.to_owned(), Box::new(command), Some(log))
}

/// The worker that runs a program for each job.
fn exec(url: String, way: Way, files: &Path) -> Member {
    let (log, program) = (files.join(EXEC), trax_binary());
    let to = log.clone();
    let command = move || {
        let mut command = tied(Path::new("/bin/sh"));
        let begin = "echo \"S $(date +%s%6N) 0 0 - -\" >> \"$CHAOS_LOG\"; exec \"$0\" \"$@\"";
        command.args(["-c", begin]).arg(&program);
        command.env("CHAOS_LOG", &to);
        match way {
            Way::Straight => command.args(["--database-url", &url, "worker"]),
            Way::ByRouter => command.args(["worker", "--router", &url]),
        };
        command.args(["--name", EXEC, "--task", "exec", "--lease", "4"]);
        command.args(["--grace", "2", "--concurrency", "2", "--exec", EXECUTED]);
        command
    };
    Member::new(EXEC.to_owned(), Box::new(command), Some(log))
}

impl Fleet {
    /// Starts a fleet that works for all shards of a router.
    pub(crate) fn of_router(url: &str) -> Self {
        let files = Scratch::new("chaos");
        let way = Way::ByRouter;
        let rust = RUST.map(|name| rust(name, url.to_owned(), way, files.path()));
        let exec = exec(url.to_owned(), way, files.path());
        Fleet {
            members: rust.into_iter().chain([exec]).collect(),
            _files: files,
        }
    }

    /// Starts all workers.
    pub(crate) fn new(testbed: &Testbed) -> Self {
        let files = Scratch::new("chaos");
        let mut members = Vec::new();
        for (name, route) in RUST.into_iter().zip([0, POOLER, 2]) {
            let url = testbed.url(route, "worker");
            members.push(rust(name, url, Way::Straight, files.path()));
        }
        let url = testbed.url(OTHERS, "worker");
        let python = {
            let (url, log) = (url.clone(), files.path().join(PYTHON));
            let program = root().join("target/languages/python/bin/python3");
            assert!(program.exists(), "run scripts/languages first");
            move || {
                let mut command = tied(&program);
                command.arg(root().join("tests/chaos/worker.py"));
                command.env("CHAOS_URL", &url).env("CHAOS_LOG", &log);
                command.env("CHAOS_NAME", PYTHON);
                command
            }
        };
        let log = files.path().join(PYTHON);
        members.push(Member::new(PYTHON.to_owned(), Box::new(python), Some(log)));
        members.push(exec(url, Way::Straight, files.path()));
        let script = logging_script(files.path());
        let psql_log = files.path().join("psql");
        let log = psql_log.clone();
        let port = testbed.route(OTHERS, "worker").get_ports()[0];
        let psql = move || {
            let mut command = tied(&script);
            command
                .env("CHAOS_LOG", &log)
                .env("PGHOST", "127.0.0.1")
                .env("PGPORT", port.to_string())
                .env("PGUSER", "worker")
                .env("PGDATABASE", DATABASE)
                .env("LEASE", "6")
                .env("PGCONNECT_TIMEOUT", "5");
            command
        };
        members.push(Member::new(
            "psql".to_owned(),
            Box::new(psql),
            Some(psql_log),
        ));
        Fleet {
            members,
            _files: files,
        }
    }

    /// The number of workers.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The name of a member.
    pub(crate) fn name(&self, member: usize) -> &str {
        &self.members[member].name
    }

    /// The process of a member.
    pub(crate) fn pid(&self, member: usize) -> i32 {
        self.members[member].process.id()
    }

    /// Sends a signal to the process of a member, if it is alive.
    pub(crate) fn signal(&self, member: usize, signal: &str) {
        let pid = self.members[member].process.id();
        if is_alive(pid) {
            send_signal(signal, pid);
        }
    }

    /// Restarts the members that have died.
    pub(crate) fn refill(&mut self) {
        for member in &mut self.members {
            if !is_alive(member.process.id()) {
                let old =
                    std::mem::replace(&mut member.process, Process::start((member.command)()));
                member.said.push(old.output());
            }
        }
    }

    /// The last output of each member, for a report.
    pub(crate) fn said(&self) -> String {
        let tail = |text: &str| {
            text.lines()
                .rev()
                .take(6)
                .map(|line| format!("    {line}\n"))
                .collect::<String>()
        };
        self.members
            .iter()
            .map(|member| format!("{}:\n{}", member.name, tail(&member.process.output())))
            .collect()
    }

    /// Panics of worker processes. Handlers' panics are caught, so any other panic is an error.
    pub(crate) fn panics(&self) -> Vec<String> {
        let mut found = Vec::new();
        for member in &self.members {
            for said in member.said.iter().chain([&member.process.output()]) {
                let odd = said.lines().filter(|line| {
                    line.contains("panicked at") && !line.contains("chaos/worker.rs")
                });
                found.extend(odd.map(|line| format!("{}: {line}", member.name)));
            }
        }
        found
    }

    /// The executions in the logs of all handlers.
    pub(crate) fn executions(&self) -> Vec<Execution> {
        let of = |member: &Member| {
            let text = member
                .log
                .as_ref()
                .and_then(|log| std::fs::read_to_string(log).ok());
            executions(&member.name, &text.unwrap_or_default())
        };
        self.members.iter().flat_map(of).collect()
    }
}

impl Member {
    fn new(name: String, command: Box<dyn Fn() -> Command + Send>, log: Option<PathBuf>) -> Self {
        let process = Process::start(command());
        Member {
            name,
            command,
            log,
            process,
            said: Vec::new(),
        }
    }
}
