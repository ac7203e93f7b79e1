//! The worker programs that the suite judges, each one command line.

use harness::process::{Scratch, trax_binary};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A worker, given as a command line that `sh -c` runs in the root of the repository.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) command: String,
    pub(super) kind: Kind,
    /// Whether a job still completes when the server refuses its output.
    pub(super) leaves_out: bool,
    /// Whether it has the task `conformance.steps`.
    pub(super) has_steps: bool,
    /// Whether it can name a version.
    pub(super) has_versions: bool,
    /// Whether it has the task `conformance.many`.
    pub(super) has_many: bool,
    /// Files made for the program.
    files: Option<Arc<Scratch>>,
}

/// The requirements on a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A client: runs several jobs at once, learns of a cancel at once, and works again within two
    /// seconds after the server is back.
    Whole,
    /// A one-page example: one job at a time; learns of a cancel with the next heartbeat.
    Short,
}

impl Program {
    pub(super) fn new(kind: Kind, command: impl Into<String>) -> Self {
        Program {
            command: command.into(),
            kind,
            leaves_out: false,
            has_steps: false,
            has_versions: false,
            has_many: false,
            files: None,
        }
    }

    /// Whether the program is a client rather than a one-page example.
    pub(super) fn is_whole(&self) -> bool {
        self.kind == Kind::Whole
    }

    /// The number of concurrent jobs, in scenarios about concurrency.
    pub(super) fn concurrency(&self) -> usize {
        match self.kind {
            Kind::Whole => 4,
            Kind::Short => 1,
        }
    }

    /// A short lease in seconds that does not expire between two heartbeats on a busy machine.
    pub(super) fn short_lease(&self) -> u32 {
        match self.kind {
            Kind::Whole => 4,
            Kind::Short => 6,
        }
    }

    /// The lease of a job that is cancelled, in seconds. With a long lease, the heartbeat of an
    /// example would come too late.
    pub(super) fn lease_of_cancel(&self) -> u32 {
        match self.kind {
            Kind::Whole => 30,
            Kind::Short => 6,
        }
    }

    /// The time limit for a cancel to stop a running handler.
    pub(super) fn cancels_within(&self) -> Duration {
        match self.kind {
            Kind::Whole => Duration::from_secs(1),
            // The next heartbeat, and a margin.
            Kind::Short => Duration::from_secs(4),
        }
    }

    /// The time limit for resuming work after the server accepts connections.
    pub(super) fn returns_within(&self) -> Duration {
        match self.kind {
            Kind::Whole => Duration::from_secs(2),
            Kind::Short => Duration::from_secs(4),
        }
    }

    /// Sets the environment for `sh`, including the programs that the command lines name.
    pub(super) fn prepare(&self, sh: &mut Command) {
        let languages = root().join("target/languages");
        if let Some(files) = &self.files {
            sh.env("FILES", files.path());
        }
        sh.arg("-c")
            .arg(format!("exec >>\"$SAID\" 2>&1; {}", self.command))
            .current_dir(root())
            .env("TRAX", trax_binary())
            .env("RUST_WORKER", env!("CARGO_BIN_EXE_conformance_worker"))
            .env("PYTHON", languages.join("python/bin/python3"))
            // Where scripts/python keeps what it has compiled.
            .env("PYTHONPYCACHEPREFIX", languages.join("pycache"))
            .env_remove("PYTHONDONTWRITEBYTECODE")
            .env("NODE_PATH", languages.join("node/node_modules"));
    }
}

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// The worker on the Rust client (worker.rs).
pub(super) fn rust() -> Program {
    Program {
        has_steps: true,
        has_versions: true,
        has_many: true,
        ..Program::new(Kind::Whole, "exec \"$RUST_WORKER\"")
    }
}

/// The `trax` command, with a bash handler (handler.sh) for every task, and `trax step` (steps.py).
pub(super) fn exec() -> Program {
    let tasks = [
        "echo",
        "wait",
        "fail",
        "fail_permanently",
        "retry_in",
        "snooze",
        "large",
        "typed",
        "steps",
    ];
    let tasks = tasks.map(|task| format!("--task conformance.{task}"));
    let command = format!(
        "exec \"$TRAX\" worker --exec 'exec bash tests/conformance/handler.sh' {} \
        --name \"$CONFORMANCE_NAME\" --concurrency \"$CONFORMANCE_CONCURRENCY\" \
        --lease \"$CONFORMANCE_LEASE\" --grace \"$CONFORMANCE_GRACE\" \
        ${{CONFORMANCE_VERSION:+--version \"$CONFORMANCE_VERSION\"}}",
        tasks.join(" ")
    );
    Program {
        leaves_out: true,
        has_steps: true,
        has_versions: true,
        ..Program::new(Kind::Whole, command)
    }
}

/// A package for another language, given by the command line of its conformance worker.
pub(super) fn package(command: &str) -> Program {
    Program {
        has_steps: true,
        has_versions: true,
        has_many: true,
        ..Program::new(Kind::Whole, command)
    }
}

/// A one-page example with the suite's tasks in place of its own, and parts of it replaced.
pub(super) fn example(language: Language, faults: &[(&str, &str)]) -> Program {
    let (path, tasks, run) = language.parts();
    let mut text = with_tasks(&read(path), &read(tasks));
    for (sound, faulty) in faults {
        assert_eq!(text.matches(sound).count(), 1, "{sound:?} in {path}");
        text = text.replace(sound, faulty);
    }
    let files = Scratch::new("example");
    std::fs::write(files.path().join("worker"), text).expect("a file can be written");
    let settings =
        "LEASE=$CONFORMANCE_LEASE GRACE=$CONFORMANCE_GRACE WORKER_NAME=$CONFORMANCE_NAME";
    Program {
        files: Some(Arc::new(files)),
        ..Program::new(
            Kind::Short,
            format!("{settings} exec {run} \"$FILES/worker\""),
        )
    }
}

/// An unchanged example.
pub(super) fn unchanged(language: Language) -> Program {
    let (path, _, run) = language.parts();
    Program::new(Kind::Short, format!("exec {run} {path}"))
}

/// The languages of the one-page workers (`trax_client/examples`).
#[derive(Clone, Copy, Debug)]
pub(super) enum Language {
    Python,
    Node,
    Psql,
}

impl Language {
    pub(super) const ALL: [Language; 3] = [Language::Python, Language::Node, Language::Psql];

    /// The example, the suite's tasks for it, and the command that runs it.
    pub(super) fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Language::Python => (
                "trax_client/examples/python/worker.py",
                "tests/conformance/tasks.py",
                "\"$PYTHON\"",
            ),
            Language::Node => (
                "trax_client/examples/node/worker.js",
                "tests/conformance/tasks.js",
                "node",
            ),
            Language::Psql => (
                "trax_client/examples/psql/worker.sh",
                "tests/conformance/tasks.sh",
                "bash",
            ),
        }
    }
}

/// Reads a file of the repository.
pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Replaces the tasks of a page, which lie between two marker lines.
fn with_tasks(page: &str, tasks: &str) -> String {
    let (before, rest) = page
        .split_once("-- The tasks")
        .expect("a line says where tasks begin");
    let (_, after) = rest
        .split_once("-- End of the tasks.")
        .expect("and one where they end");
    format!("{before}-- The tasks\n{tasks}\n{after}")
}

/// The worker named by CONFORMANCE_WORKER; judged as a one-page example if CONFORMANCE_KIND=short,
/// and on steps, versions and calls with many jobs if CONFORMANCE_STEPS, CONFORMANCE_VERSIONS and
/// CONFORMANCE_MANY are set.
pub(super) fn named() -> Option<Program> {
    let command = std::env::var("CONFORMANCE_WORKER").ok()?;
    let kind = match std::env::var("CONFORMANCE_KIND").as_deref() {
        Err(_) | Ok("whole") => Kind::Whole,
        Ok("short") => Kind::Short,
        Ok(other) => panic!("CONFORMANCE_KIND is whole or short, not {other:?}"),
    };
    Some(Program {
        has_steps: std::env::var_os("CONFORMANCE_STEPS").is_some(),
        has_versions: std::env::var_os("CONFORMANCE_VERSIONS").is_some(),
        has_many: std::env::var_os("CONFORMANCE_MANY").is_some(),
        ..Program::new(kind, command)
    })
}
