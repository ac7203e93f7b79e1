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
    /// Whether a job is completed also when the server refuses its output.
    pub(super) leaves_out: bool,
    /// Files that were made for it.
    files: Option<Arc<Scratch>>,
}

/// What is asked of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A client: runs several jobs at once, hears of a cancel at once, and is back within two
    /// seconds of the server.
    Whole,
    /// An example on one page: one job at a time; hears of a cancel with the next heartbeat.
    Short,
}

impl Program {
    pub(super) fn new(kind: Kind, command: impl Into<String>) -> Self {
        Program {
            command: command.into(),
            kind,
            leaves_out: false,
            files: None,
        }
    }

    /// Whether it is a client, and not an example on one page.
    pub(super) fn is_whole(&self) -> bool {
        self.kind == Kind::Whole
    }

    /// How many jobs it is asked to run at once where that is what a scenario is about.
    pub(super) fn concurrency(&self) -> usize {
        match self.kind {
            Kind::Whole => 4,
            Kind::Short => 1,
        }
    }

    /// A lease that runs out soon, in seconds; not between two heartbeats on a busy machine.
    pub(super) fn short_lease(&self) -> u32 {
        match self.kind {
            Kind::Whole => 4,
            Kind::Short => 6,
        }
    }

    /// The lease during which a job is cancelled, in seconds; with the long one a heartbeat would
    /// come too late.
    pub(super) fn lease_of_cancel(&self) -> u32 {
        match self.kind {
            Kind::Whole => 30,
            Kind::Short => 6,
        }
    }

    /// Within which time a running handler is stopped by a cancel.
    pub(super) fn cancels_within(&self) -> Duration {
        match self.kind {
            Kind::Whole => Duration::from_secs(1),
            // The next heartbeat, and a little.
            Kind::Short => Duration::from_secs(4),
        }
    }

    /// Within which time it works again after the server accepts connections.
    pub(super) fn returns_within(&self) -> Duration {
        match self.kind {
            Kind::Whole => Duration::from_secs(2),
            Kind::Short => Duration::from_secs(4),
        }
    }

    /// Makes `sh` run it, with what the command lines name.
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
    Program::new(Kind::Whole, "exec \"$RUST_WORKER\"")
}

/// The command, with a handler in bash (handler.sh) for every task.
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
    ];
    let tasks = tasks.map(|task| format!("--task conformance.{task}"));
    let command = format!(
        "exec \"$TRAX\" worker --exec 'exec bash tests/conformance/handler.sh' {} \
        --name \"$CONFORMANCE_NAME\" --concurrency \"$CONFORMANCE_CONCURRENCY\" \
        --lease \"$CONFORMANCE_LEASE\" --grace \"$CONFORMANCE_GRACE\"",
        tasks.join(" ")
    );
    Program {
        leaves_out: true,
        ..Program::new(Kind::Whole, command)
    }
}

/// A package for another language, by the command line of its conformance worker.
pub(super) fn package(command: &str) -> Program {
    Program::new(Kind::Whole, command)
}

/// An example on one page, with the suite's tasks in place of its own and parts replaced by others.
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

/// An example as it is.
pub(super) fn unchanged(language: Language) -> Program {
    let (path, _, run) = language.parts();
    Program::new(Kind::Short, format!("exec {run} {path}"))
}

/// What the workers on one page (`trax_client/examples`) are written in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Language {
    Python,
    Node,
    Psql,
}

impl Language {
    pub(super) const ALL: [Language; 3] = [Language::Python, Language::Node, Language::Psql];

    /// The example, the suite's tasks for it, and what runs it.
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

/// A file of the repository.
pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A page with these tasks between its two lines that say where its own are.
fn with_tasks(page: &str, tasks: &str) -> String {
    let (before, rest) = page
        .split_once("-- The tasks")
        .expect("a line says where tasks begin");
    let (_, after) = rest
        .split_once("-- End of the tasks.")
        .expect("and one where they end");
    format!("{before}-- The tasks\n{tasks}\n{after}")
}

/// The one that CONFORMANCE_WORKER names; judged as a short one with CONFORMANCE_KIND=short.
pub(super) fn named() -> Option<Program> {
    let command = std::env::var("CONFORMANCE_WORKER").ok()?;
    let kind = match std::env::var("CONFORMANCE_KIND").as_deref() {
        Err(_) | Ok("whole") => Kind::Whole,
        Ok("short") => Kind::Short,
        Ok(other) => panic!("CONFORMANCE_KIND is whole or short, not {other:?}"),
    };
    Some(Program::new(kind, command))
}
