//! `trax`: the command line. One file a command.
//!
//! Exit codes: 0 done, 1 failed, 2 unhealthy, 3 out of time, 64 wrong usage; those of `trax lock` are told there.

mod address;
mod bench;
mod check;
mod cron;
mod dead;
mod demo;
mod enqueue;
mod exec;
mod failure;
mod grant;
mod group;
mod jobs;
mod lock;
mod manifest;
mod manual;
mod output;
mod pause;
mod print;
mod process_group;
mod run_to_come;
mod session;
mod status;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;

/// What every script may rely on.
const EXIT_CODES: &str = "Exit codes:
  0   done
  1   failed: the server refused or cannot be reached, or there is no such job
  2   unhealthy: status, check and what else judges found something wrong
  3   out of time: what was waited for did not happen
  64  wrong usage: arguments, input or files that cannot be read";

/// A job scheduler inside PostgreSQL: run workers, enqueue jobs, look after it.
#[derive(Parser)]
#[command(
    name = "trax",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(after_help = EXIT_CODES)]
struct Arguments {
    /// Where the database is; otherwise DATABASE_URL, otherwise PGHOST, PGPORT, PGUSER, PGDATABASE
    /// and PGPASSWORD.
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a small real workload on a throw-away server, watch it, and check the counts
    Demo(demo::Arguments),
    /// Claim jobs and run a program for each
    Worker(worker::Arguments),
    /// Run a program while holding a token that only so many may hold at once
    Lock(lock::Arguments),
    /// Queue jobs and print their ids
    Enqueue(enqueue::Arguments),
    /// Show what runs, what is missing and what to type; exit code 2 when something is wrong
    Status(status::Arguments),
    /// Verify every invariant; exit code 2 when one is violated
    Check(check::Arguments),
    /// List, show, cancel, retry and watch jobs
    Jobs(jobs::Arguments),
    /// List, show, requeue and acknowledge jobs that failed for good
    Dead(dead::Arguments),
    /// Look at, apply, switch and trigger what is scheduled
    Manifest(manifest::Arguments),
    /// Look at groups, limit, pause and resume them
    Group(group::Arguments),
    /// Who executes jobs
    Workers(workers::Arguments),
    /// Pause the scheduler of this database, also over restarts; workers go on
    Pause(pause::Arguments),
    /// Let the paused scheduler go on
    Resume(pause::ResumeArguments),
    /// What a cron expression says and when it fires
    Cron(cron::Arguments),
    /// Let a role read, produce, work or do everything
    Grant(grant::Arguments),
    /// Print a completion script for a shell
    Completions(manual::CompletionArguments),
    /// Print or write manual pages
    Man(manual::ManArguments),
    /// Measure this server, beside what PostgreSQL itself can do there
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("cannot start: {error}")).report(),
    };
    let code = match runtime.block_on(run(arguments)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    // A handler that blocks its thread must not keep the process.
    runtime.shutdown_background();
    code
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let url = arguments.database_url;
    match arguments.command {
        Command::Demo(arguments) => demo::run(url, arguments).await,
        Command::Worker(arguments) => worker::run(url, arguments).await,
        Command::Lock(arguments) => lock::run(url, arguments).await,
        Command::Enqueue(arguments) => enqueue::run(url, arguments).await,
        Command::Status(arguments) => status::run(url, arguments).await,
        Command::Check(arguments) => check::run(url, arguments).await,
        Command::Jobs(arguments) => jobs::run(url, arguments).await,
        Command::Dead(arguments) => dead::run(url, arguments).await,
        Command::Manifest(arguments) => manifest::run(url, arguments).await,
        Command::Group(arguments) => group::run(url, arguments).await,
        Command::Workers(arguments) => workers::run(url, arguments).await,
        Command::Pause(arguments) => pause::run(url, arguments).await,
        Command::Resume(arguments) => pause::resume(url, arguments).await,
        Command::Cron(arguments) => cron::run(url, arguments).await,
        Command::Grant(arguments) => grant::run(url, arguments).await,
        Command::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => manual::man(arguments, Arguments::command()),
        Command::Bench(arguments) => bench::run(url, arguments).await,
    }
}

/// Help and version are asked for; everything else is a mistake.
fn usage(error: &clap::Error) -> ExitCode {
    // Who reads no further, as head does, has what they wanted.
    if let Err(error) = error.print()
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("trax: {error}");
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(failure::USAGE),
    }
}
