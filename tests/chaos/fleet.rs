//! The worker processes of a campaign: three in Rust, one in Python, one that runs a program for
//! each job, one of psql alone.

use crate::fact::Execution;
use crate::ground::{Ground, OTHERS, POOLER};
use crate::journal::executions;
use crate::worker::CONCURRENCY;
use harness::process::{Process, Scratch, is_alive, send_signal, trax_binary};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workers in Rust.
const RUST: [&str; 3] = ["rust-0", "rust-1", "rust-2"];
/// The worker in Python.
const PYTHON: &str = "python";
/// The workers whose handlers keep a log, and how many jobs each begins at once at most.
pub(crate) const LOGGED: [(&str, usize); 4] = [
    (RUST[0], CONCURRENCY),
    (RUST[1], CONCURRENCY),
    (RUST[2], CONCURRENCY),
    (PYTHON, 1),
];

/// One place in the fleet; who has it may die, and another comes.
struct Place {
    name: String,
    command: Box<dyn Fn() -> Command + Send>,
    log: Option<PathBuf>,
    process: Process,
    /// As it began, for those that died: what they said.
    said: Vec<String>,
}

/// All of them.
pub(crate) struct Fleet {
    places: Vec<Place>,
    _files: Scratch,
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// The kernel ends it when this process is gone.
fn tied(program: &Path) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

impl Fleet {
    /// Starts all.
    pub(crate) fn new(ground: &Ground) -> Self {
        let files = Scratch::new("chaos");
        let this = std::env::current_exe().expect("a process knows its program");
        let mut places = Vec::new();
        for (name, route) in RUST.into_iter().zip([0, POOLER, 2]) {
            let name = name.to_owned();
            let log = files.path().join(&name);
            let (this, url) = (this.clone(), ground.url(route, "worker"));
            let (to, called) = (log.clone(), name.clone());
            let command = move || {
                let mut command = tied(&this);
                command.arg("worker").env("CHAOS_URL", &url);
                command.env("CHAOS_LOG", &to).env("CHAOS_NAME", &called);
                command
            };
            places.push(Place::new(name, Box::new(command), Some(log)));
        }
        let url = ground.url(OTHERS, "worker");
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
        places.push(Place::new(PYTHON.to_owned(), Box::new(python), Some(log)));
        let exec = {
            let (url, program) = (url.clone(), trax_binary());
            move || {
                let mut command = tied(&program);
                command.args([
                    "--database-url",
                    &url,
                    "worker",
                    "--task",
                    "exec",
                    "--lease",
                    "4",
                ]);
                command.args([
                    "--grace",
                    "2",
                    "--concurrency",
                    "2",
                    "--exec",
                    "sleep 0.1; cat",
                ]);
                command
            }
        };
        places.push(Place::new("exec".to_owned(), Box::new(exec), None));
        let script = root().join("trax_client/examples/psql/worker.sh");
        let psql = move || {
            let mut command = tied(&script);
            command
                .env("DATABASE_URL", &url)
                .env("LEASE", "6")
                .env("PGCONNECT_TIMEOUT", "5");
            command
        };
        places.push(Place::new("psql".to_owned(), Box::new(psql), None));
        Fleet {
            places,
            _files: files,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The name of a place.
    pub(crate) fn name(&self, place: usize) -> &str {
        &self.places[place].name
    }

    /// The process that has a place.
    pub(crate) fn pid(&self, place: usize) -> i32 {
        self.places[place].process.id()
    }

    /// Sends a signal to who has the place, if he lives.
    pub(crate) fn signal(&self, place: usize, signal: &str) {
        let pid = self.places[place].process.id();
        if is_alive(pid) {
            send_signal(signal, pid);
        }
    }

    /// Puts a new one where one has died.
    pub(crate) fn refill(&mut self) {
        for place in &mut self.places {
            if !is_alive(place.process.id()) {
                let old = std::mem::replace(&mut place.process, Process::start((place.command)()));
                place.said.push(old.output());
            }
        }
    }

    /// What each place said last, for a report.
    pub(crate) fn said(&self) -> String {
        let tail = |text: &str| {
            text.lines()
                .rev()
                .take(6)
                .map(|line| format!("    {line}\n"))
                .collect::<String>()
        };
        self.places
            .iter()
            .map(|place| format!("{}:\n{}", place.name, tail(&place.process.output())))
            .collect()
    }

    /// Panics of worker processes, which are never right: handlers' panics are caught.
    pub(crate) fn panics(&self) -> Vec<String> {
        let mut found = Vec::new();
        for place in &self.places {
            for said in place.said.iter().chain([&place.process.output()]) {
                let odd = said.lines().filter(|line| {
                    line.contains("panicked at") && !line.contains("chaos/worker.rs")
                });
                found.extend(odd.map(|line| format!("{}: {line}", place.name)));
            }
        }
        found
    }

    /// What their handlers wrote down.
    pub(crate) fn executions(&self) -> Vec<Execution> {
        let of = |place: &Place| {
            let text = place
                .log
                .as_ref()
                .and_then(|log| std::fs::read_to_string(log).ok());
            executions(&place.name, &text.unwrap_or_default())
        };
        self.places.iter().flat_map(of).collect()
    }
}

impl Place {
    fn new(name: String, command: Box<dyn Fn() -> Command + Send>, log: Option<PathBuf>) -> Self {
        let process = Process::start(command());
        Place {
            name,
            command,
            log,
            process,
            said: Vec::new(),
        }
    }
}
