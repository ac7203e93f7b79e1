//! The worker programs that the suite judges, each one command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::process::trax_binary;

/// A worker, given as a command line that `sh -c` runs in the root of the repository.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) command: String,
    pub(super) kind: Kind,
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
        }
    }

    /// How many jobs it is asked to run at once where that is what a scenario is about.
    pub(super) fn concurrency(&self) -> usize {
        match self.kind {
            Kind::Whole => 4,
            Kind::Short => 1,
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
    Program::new(
        Kind::Whole,
        format!(
            "exec \"$TRAX\" worker --exec 'exec bash tests/conformance/handler.sh' {} \
            --name \"$CONFORMANCE_NAME\" --concurrency \"$CONFORMANCE_CONCURRENCY\" \
            --lease \"$CONFORMANCE_LEASE\" --grace \"$CONFORMANCE_GRACE\"",
            tasks.join(" ")
        ),
    )
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
