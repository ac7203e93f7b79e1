//! The conformance suite: scenarios that run any worker program, given as a command line, against a
//! real server, and judge it by the tables and by the log of its handlers. README.md beside this
//! file describes such a program; docs/protocol.md describes how to run the suite against another
//! one.
//!
//! Words: a *program* is a worker under test, a *scenario* a requirement on every program, a
//! *trial* one program in one scenario. The *verdict* on a trial is a value, so that the suite
//! itself can be tested with faulty programs (`fault`).

mod example;
mod fault;
mod log;
mod many;
mod program;
mod rates;
mod refusal;
mod scenario;
mod steps;
mod trial;
mod unheard;
mod versions;

use harness::scheduler::scheduling;
use program::{Language, Program};
use scenario::Scenario;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, SemaphorePermit};
use trax_client::testkit::Server;
use trial::{Trial, Verdict};

/// The number of repetitions of a failed trial while the machine is busy with other work.
const TRIES_WHEN_BUSY: usize = 2;

/// A server for the suite, with the workers' role.
fn server() -> Server {
    let options = scheduling().setting("max_connections", "400");
    let server = options.start().expect("a server starts");
    let mut psql = server.command("psql");
    psql.args(["-qXc", "create role conformance login", "postgres"]);
    harness::process::run_quietly(&mut psql);
    server
}

fn shared_server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(server)
}

/// Runs one scenario with one program, on a separate thread.
fn judge(program: Program, scenario: Scenario) -> JoinHandle<Verdict> {
    std::thread::spawn(move || {
        on_this_thread(async {
            let _place = place().await;
            let mut own = (scenario == Scenario::Restart).then(server);
            let on = own.as_ref().unwrap_or_else(|| shared_server());
            let mut trial = Trial::new(program, on).await;
            let verdict = scenario.play(&mut trial, own.as_mut()).await;
            verdict.map_err(|wrong| format!("{scenario:?}: {wrong}{}", trial.said()))
        })
    })
}

/// Waits for a permit; at most 8 trials run at once, so that they do not slow each other down.
async fn place() -> SemaphorePermit<'static> {
    static PLACES: Semaphore = Semaphore::const_new(8);
    PLACES.acquire().await.expect("it is never closed")
}

/// Whether the load of the machine alone could make a worker too slow.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load
        .split(' ')
        .next()
        .map_or(0.0, |n| n.parse().unwrap_or(0.0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    load > 3.0 * cores as f64
}

fn on_this_thread<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build();
    runtime.expect("a runtime starts").block_on(work)
}

/// Returns the verdict of a trial.
fn verdict(trial: JoinHandle<Verdict>) -> Verdict {
    match trial.join() {
        Ok(verdict) => verdict,
        // A failure of the suite itself is not a verdict on the program.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs all scenarios at once, or the one named by CONFORMANCE_SCENARIO.
fn conforms(program: Program) {
    let only = std::env::var("CONFORMANCE_SCENARIO").ok();
    let chosen = |scenario: &Scenario| {
        let name = format!("{scenario:?}");
        only.as_ref().is_none_or(|only| *only == name)
    };
    let trials: Vec<_> = Scenario::ALL
        .into_iter()
        .filter(chosen)
        .map(|scenario| (scenario, judge(program.clone(), scenario)))
        .collect();
    assert!(!trials.is_empty(), "no scenario has the name {only:?}");
    let mut wrong = Vec::new();
    for (scenario, trial) in trials {
        let mut last = verdict(trial);
        for _ in 0..TRIES_WHEN_BUSY {
            if last.is_err() && is_busy() {
                eprintln!("on a busy machine: {last:?}");
                last = verdict(judge(program.clone(), scenario));
            }
        }
        wrong.extend(last.err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_worker_in_rust_conforms() {
    conforms(program::rust());
}

#[test]
fn the_command_conforms() {
    conforms(program::exec());
}

/// Followed by `sync` or `async`.
const PYTHON: &str = "PYTHONPATH=trax_client/python/src exec \"$PYTHON\"";
const PYTHON_WORKER: &str = "trax_client/python/tests/conformance_worker.py";

#[test]
fn the_package_for_python_conforms() {
    conforms(program::package(&format!("{PYTHON} {PYTHON_WORKER} sync")));
}

#[test]
fn the_package_for_python_with_an_event_loop_conforms() {
    conforms(program::package(&format!("{PYTHON} {PYTHON_WORKER} async")));
}

#[test]
fn the_package_for_node_conforms() {
    let mut build = std::process::Command::new(program::root().join("scripts/node"));
    harness::process::run_quietly(build.arg("build"));
    conforms(program::package(
        "exec scripts/node run trax_client/node/dist/test/conformance-worker.js",
    ));
}

#[test]
fn the_example_in_python_conforms() {
    conforms(program::example(Language::Python, &[]));
}

#[test]
fn the_example_in_node_conforms() {
    conforms(program::example(Language::Node, &[]));
}

#[test]
fn the_example_of_psql_conforms() {
    conforms(program::example(Language::Psql, &[]));
}

/// Any other worker; docs/protocol.md says how to name it.
#[test]
fn the_named_worker_conforms() {
    if let Some(program) = program::named() {
        conforms(program);
    }
}
