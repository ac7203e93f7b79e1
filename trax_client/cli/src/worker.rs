//! `trax worker --exec`: runs any program as a worker.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use trax_client::{Address, Context, Event, Worker, is_router};

use crate::credentials::{self, PassedVariables};
use crate::exec::Program;
use crate::executable::Executable;
use crate::output::json;
use crate::stored::StoredInput;
use trax_terminal::address;
use trax_terminal::print;
use trax_terminal::{Failure, at_least_a_second, duration};

/// The protocol of `exec`, for authors of programs.
const PROTOCOL: &str = "\
The program gets the input as JSON on standard input, and in its environment
TRAX_JOB_ID, TRAX_ATTEMPT, TRAX_MAX_ATTEMPTS (equal in the last attempt),
TRAX_TASK, TRAX_GROUP, TRAX_QUEUED_AT and, when they are known, TRAX_MANIFEST,
TRAX_SCHEDULED_FOR and TRAX_DEADLINE (times are seconds since 1970), also the
TRACEPARENT and TRACESTATE that trax enqueue had in its environment.
TRAX_INPUT_FROM is manifest if the input is the one that the job's manifest
stores now, job if it was given with the job, and unknown if the database did
not answer. The passwords of this worker are withheld (see --pass-env).
It can call trax step (TRAX_STEP_SOCKET) to run a command once, whatever the
number of attempts, to sleep for days, or to wait for a signal.
Its exit code is the outcome:
  0      completed; standard output is the output: as it is if it is JSON (of
         less than 1 MiB), or else the last 4 KiB as a text; U+FFFD replaces
         characters that PostgreSQL cannot store; one that the database refuses
         is left out, as the job's detail says
  65     failed for good: a retry would fail again (EX_DATAERR)
  75     failed temporarily: retried, after --retry-delay if set (EX_TEMPFAIL)
  other  failed, also when killed by a signal: retried after the job's own delay

A failing program can print {\"retry_in\": SECONDS} to set when it is retried,
{\"snooze\": SECONDS} to wait that long without using up an attempt, or
{\"cancel\": REASON} to end the job as cancelled. Other output is stored as the
detail of the failure, and the last 4 KiB of standard error as its error.
Of a completed job whose output has an exit_code other than 0, as trax import run
--like-cron prints it, the log has a line.

A command that begins with a program that does not exist is refused. If that
program vanishes later, or no process can be started, jobs are released.

It runs in its own process group, which gets SIGTERM when the job is cancelled,
times out, loses its lease or is suspended by trax step, and SIGKILL after the
grace period. Processes that it leaves running in the group when it ends, or
when the worker is killed, end in the same way; one that is to keep running
needs its own session (setsid).

The worker exits with 0 after SIGTERM, SIGINT or --until-empty: it claims no
more jobs, and jobs that still run after the grace period are released. A second
signal ends the grace period at once.

It notifies systemd (Type=notify) when it has reached the database and when it
stops, and feeds the watchdog while its loops run. /livez reports whether they
run, and /readyz whether it claims jobs, with one line that says why not.";

/// `exec` describes how a program communicates with the worker.
#[derive(clap::Args)]
#[command(after_help = PROTOCOL)]
pub(crate) struct Arguments {
    /// The command to run for each job, by sh -c
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// Claim from all shards of this router, and from those that are added later, instead of
    /// --database-url
    #[arg(long, value_name = "URL")]
    router: Option<String>,
    #[arg(skip)]
    others: Vec<String>,
    /// Claim this task; may be repeated
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// Claim every task, also those meant for other programs
    #[arg(long, conflicts_with = "tasks")]
    all_tasks: bool,
    /// Claim only from this group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Claim only jobs of this version and jobs without a version; may be repeated
    #[arg(long = "version", value_name = "VERSION")]
    versions: Vec<String>,
    /// How many programs run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// How long a lease lasts without a heartbeat
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = at_least_a_second)]
    lease: Duration,
    /// How long programs may run after SIGTERM to the worker, or after their cancellation
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// The delay before a retry after exit code 75, instead of the job's own
    #[arg(long, value_name = "TIME", value_parser = duration)]
    retry_delay: Option<Duration>,
    /// The worker's name in leases and runs; default: host, process and a random part
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    passed: PassedVariables,
    /// Serve /livez and /readyz on this address; a port alone is reachable from this machine only
    #[arg(long, value_name = "ADDRESS")]
    health: Option<String>,
    /// Stop when the queue is empty
    #[arg(long)]
    until_empty: bool,
    /// Print one JSON array with one object at the end: how it stopped, and the counts; the log
    /// stays on standard error
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Log only problems
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
    /// Also log the database
    #[arg(long, short, help_heading = "Output")]
    verbose: bool,
}

impl Arguments {
    /// Adds the databases given after the first --database-url.
    pub(crate) fn also(&mut self, others: Vec<String>) {
        self.others = others;
    }
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    credentials::hide();
    if arguments.router.is_some() && url.is_some() {
        return Err(Failure::usage(
            "--router takes the place of --database-url; specify one of them",
        ));
    }
    if arguments.exec.trim().is_empty() {
        return Err(
            Failure::usage("the command of --exec is empty: every job would complete")
                .hint("type --exec COMMAND, such as --exec ./handle-job"),
        );
    }
    if let Some(program) = Executable::of(&arguments.exec)
        && !program.exists()
    {
        let name = program.name();
        let failure =
            format!("the program \"{name}\" of --exec does not exist or is not executable");
        return Err(Failure::usage(failure).hint(
            "type its path, such as --exec ./handle-job, or the interpreter: --exec 'sh handle-job'",
        ));
    }
    if arguments.tasks.is_empty() && !arguments.all_tasks {
        return Err(Failure::usage("no task is specified: every job would run COMMAND").hint(
            "type --task TASK for each task that COMMAND handles, or --all-tasks if it handles all",
        ));
    }
    if arguments.tasks.iter().any(|task| task == "sql") {
        return Err(Failure::usage(
            "no worker takes task \"sql\": the server itself runs its statements",
        )
        .hint("leave it out; trax doctor says why statements wait"));
    }
    let config = address::from_environment(arguments.router.as_deref().or(url.as_deref()))?;
    let others: Vec<Address> = arguments
        .others
        .iter()
        .map(|url| address::from_environment(Some(url)))
        .collect::<Result<_, _>>()?;
    // The worker itself waits for an unreachable server. At a prompt an error should appear at
    // once; with health checks they report it. A missing right is left to the first claim, so that
    // only the worker's own rights are needed.
    let is_watched = arguments.health.is_some() || std::env::var_os("NOTIFY_SOCKET").is_some();
    if !is_watched && others.is_empty() {
        let connection = address::connect(&config).await?;
        if arguments.router.is_none() && is_router(&*connection).await? {
            return Err(Failure::usage("this is a router: it has no jobs to claim")
                .hint("type --router URL in place of --database-url"));
        }
    }
    if arguments.verbose {
        for config in std::iter::once(&config).chain(&others) {
            let text = format!("connecting to {}", address::describe(config));
            print::log("trax", &text);
        }
    }

    let grace = arguments.grace;
    if !arguments.quiet {
        print::log("trax", &intention(&arguments));
    }
    let (lease, retry_delay) = (arguments.lease, arguments.retry_delay);
    let program = Program::new(
        arguments.exec,
        grace,
        retry_delay,
        lease,
        arguments.passed,
        StoredInput::default(),
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
        // The program's own grace period ends first.
        .cancel_patience(grace + Duration::from_secs(2))
        .notify_systemd()
        .on_event(|event| match event {
            // The summary counts completions.
            Event::Completed { .. } => {}
            event => print::log("trax", &event.to_string()),
        });
    if arguments.router.is_some() {
        worker = worker.router();
    }
    for other in others {
        worker = worker.also(other);
    }
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
    if !arguments.versions.is_empty() {
        worker = worker.versions(arguments.versions);
    }
    if arguments.tasks.is_empty() {
        worker = worker.handle_any(handler);
    } else {
        for task in arguments.tasks {
            worker = worker.handle(task, handler.clone());
        }
    }
    let summary = tokio::select! {
        summary = worker.run() => summary,
        never = program.keep_guard() => match never {},
    };
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

/// Returns the first line of the log.
fn intention(arguments: &Arguments) -> String {
    let tasks = match arguments.tasks.as_slice() {
        [] => "every task".to_owned(),
        tasks => tasks.join(", "),
    };
    let groups = match arguments.groups.as_slice() {
        [] => String::new(),
        groups => format!(" in group {}", groups.join(", ")),
    };
    let versions = match arguments.versions.as_slice() {
        [] => String::new(),
        versions => format!(" of version {} or none", versions.join(", ")),
    };
    let at_once = arguments.concurrency;
    format!("claiming jobs of {tasks}{groups}{versions}, {at_once} at once")
}
