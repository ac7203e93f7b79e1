//! `trax`: the command line. One file a command.
//!
//! Exit codes: 0 done, 1 failed, 2 unhealthy, 64 wrong usage; those of `trax lock` are told there.

mod address;
mod bench;
mod check;
mod demo;
mod enqueue;
mod exec;
mod failure;
mod lock;
mod print;
mod process_group;
mod status;
mod worker;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use failure::Failure;

/// A job scheduler inside PostgreSQL: run workers, enqueue jobs, look after it.
#[derive(Parser)]
#[command(name = "trax", version, arg_required_else_help = true)]
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
        Command::Bench(arguments) => bench::run(url, arguments).await,
    }
}

/// Help and version are asked for; everything else is a mistake.
fn usage(error: &clap::Error) -> ExitCode {
    if let Err(error) = error.print() {
        eprintln!("trax: {error}");
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(failure::USAGE),
    }
}
