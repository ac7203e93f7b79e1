//! `trax worker --exec`: any program is a worker.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use trax_client::{Context, Worker};

use crate::address;
use crate::exec::Program;
use crate::failure::Failure;
use crate::print;

/// How a program talks to the worker is told in `exec`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program, run by sh -c: the input comes on standard input, JSON on standard output is the
    /// output; exit code 0 completes, 65 fails for good, 75 and all others fail and are retried
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// Claim only this task; may be repeated; every task without it
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// Claim only from this group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// How many programs run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// How long a lease lasts without a heartbeat
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    lease: u32,
    /// How long programs may go on after SIGTERM here, or after their cancellation
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u32,
    /// Stop when the queue is empty
    #[arg(long)]
    until_empty: bool,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    // The worker itself waits for a server; a person at a prompt wants to know at once.
    // What this role may not do the first claim tells: no other right than the worker's is needed.
    drop(address::connect(&config).await?);

    let grace = Duration::from_secs(arguments.grace.into());
    print::log("trax", &intention(&arguments));
    let program = Arc::new(Program::new(arguments.exec, grace));
    let shared = Arc::clone(&program);
    let handler = move |input, ctx: Context| {
        let program = Arc::clone(&shared);
        async move { program.run(input, ctx).await }
    };
    let mut worker = Worker::new(config)
        .concurrency(arguments.concurrency.into())
        .lease(Duration::from_secs(arguments.lease.into()))
        .grace(grace)
        // The program's own grace ends first.
        .cancel_patience(grace + Duration::from_secs(2))
        .on_event(|event| print::log("trax", &event.to_string()));
    if arguments.until_empty {
        worker = worker.until_empty();
    }
    if !arguments.groups.is_empty() {
        worker = worker.groups(arguments.groups);
    }
    if arguments.tasks.is_empty() {
        worker = worker.handle_any(handler);
    } else {
        for task in arguments.tasks {
            worker = worker.handle(task, handler.clone());
        }
    }
    let summary = worker.run().await;
    program.kill_all();
    print::log("trax", &summary?.to_string());
    Ok(ExitCode::SUCCESS)
}

/// The first line of the log.
fn intention(arguments: &Arguments) -> String {
    let tasks = match arguments.tasks.as_slice() {
        [] => "every task".to_owned(),
        tasks => tasks.join(", "),
    };
    let groups = match arguments.groups.as_slice() {
        [] => String::new(),
        groups => format!(" in group {}", groups.join(", ")),
    };
    let at_once = arguments.concurrency;
    format!("takes jobs of {tasks}{groups}, {at_once} at once")
}
