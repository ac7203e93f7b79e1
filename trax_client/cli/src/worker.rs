//! `trax worker --exec`: any program is a worker.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::TargetSessionAttrs;
use trax_client::{Context, Worker};

use crate::credentials::Passed;
use crate::exec::Program;
use crate::output::json;
use crate::stored::Stored;
use trax_terminal::Failure;
use trax_terminal::address;
use trax_terminal::print;

/// What `exec` does, for who writes the program.
const PROTOCOL: &str = "\
The program gets the input as JSON on standard input, and in its environment
TRAX_JOB_ID, TRAX_ATTEMPT, TRAX_TASK, TRAX_GROUP and, when they are known,
TRAX_MANIFEST, TRAX_SCHEDULED_FOR and TRAX_DEADLINE (seconds since 1970), also
the TRACEPARENT and TRACESTATE that trax enqueue had in its own.
TRAX_INPUT_FROM is manifest when the input is the one that the job's manifest
stores now, job when whoever made the job gave it, unknown when the database
does not say. The passwords of this worker are withheld (see --pass-env).
Its exit code is the outcome:
  0      completed; standard output is the output when it is JSON (to 1 MiB)
  65     failed for good: the input will be wrong again (EX_DATAERR)
  75     failed for now: retried, after --retry-delay if given (EX_TEMPFAIL)
  other  failed, as by a signal: retried after the job's own delay

A failing program that prints {\"retry_in\": SECONDS} says when it is retried;
{\"snooze\": SECONDS} gives the attempt back until then, and {\"cancel\": REASON}
ends the job as cancelled. Other JSON is kept as the detail of the failure, the
last 4 KiB of standard error as its error.

It runs in a process group of its own, which gets SIGTERM when the job is
cancelled, has timed out or is lost, and SIGKILL after the grace. What it leaves
running there when it ends, or when the worker is killed, ends in the same way:
what is to go on needs a session of its own (setsid).

The worker ends with 0 after SIGTERM, SIGINT or --until-empty: it claims no
more, and what still runs after the grace goes back to the queue. A second
signal ends the grace at once.

It tells systemd (Type=notify) when it has reached the database and when it
stops, and feeds the watchdog while its loops turn. /livez says whether they
do, /readyz whether it takes jobs, with one line that says why not.";

/// How a program talks to the worker is told in `exec`.
#[derive(clap::Args)]
#[command(after_help = PROTOCOL)]
pub(crate) struct Arguments {
    /// The program and its arguments, run by sh -c for each job
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
    /// When a temporary failure (exit code 75) is run again, in place of the job's own delay
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32))]
    retry_delay: Option<u32>,
    /// The worker's name in leases and runs; by default host, process and a random part
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    passed: Passed,
    /// Serve /livez and /readyz on this address; a port alone is one of this machine only
    #[arg(long, value_name = "ADDRESS")]
    health: Option<String>,
    /// Stop when the queue is empty
    #[arg(long)]
    until_empty: bool,
    /// One JSON array of an object at the end, for programs: how it stopped and the counts; the log
    /// stays on standard error
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Log only what goes wrong
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
    /// Log also which database is asked
    #[arg(long, short, help_heading = "Output")]
    verbose: bool,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    // The worker itself waits for a server; a person at a prompt wants to know at once, who watches
    // its health asks. What this role may not do the first claim tells: no other right than the
    // worker's is needed.
    if arguments.health.is_none() && std::env::var_os("NOTIFY_SOCKET").is_none() {
        drop(address::connect(&config).await?);
    }
    if arguments.verbose {
        print::log("trax", &format!("asks {}", address::describe(&config)));
    }

    let grace = Duration::from_secs(arguments.grace.into());
    if !arguments.quiet {
        print::log("trax", &intention(&arguments));
    }
    let retry_delay = arguments.retry_delay.map(|s| Duration::from_secs(s.into()));
    let lease = Duration::from_secs(arguments.lease.into());
    // On a standby a lease may not have arrived yet, and the input would be taken for somebody's.
    let mut primary = config.clone();
    if primary.get_target_session_attrs() == TargetSessionAttrs::Any {
        primary.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let stored = Stored::new(primary);
    let program = Program::new(
        arguments.exec,
        grace,
        retry_delay,
        lease,
        arguments.passed,
        stored,
    );
    let program = Arc::new(program);
    let shared = Arc::clone(&program);
    let handler = move |input, ctx: Context| {
        let program = Arc::clone(&shared);
        async move { program.run(input, ctx).await }
    };
    let mut worker = Worker::new(config)
        .concurrency(arguments.concurrency.into())
        .lease(lease)
        .grace(grace)
        // The program's own grace ends first.
        .cancel_patience(grace + Duration::from_secs(2))
        .notify_systemd()
        .on_event(|event| print::log("trax", &event.to_string()));
    if let Some(address) = arguments.health {
        worker = worker.health_address(address);
    }
    if let Some(name) = arguments.name {
        worker = worker.name(name);
    }
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
    let summary = summary?;
    if arguments.json {
        json(&[&summary])?;
    }
    if !arguments.quiet {
        print::log("trax", &summary.to_string());
    }
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
