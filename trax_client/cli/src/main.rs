//! `trax`: the command line, with one file per command.
//!
//! Exit codes: 0 done, 1 failed, 2 unhealthy, 3 out of time, 64 wrong usage; `trax lock` has its
//! own.

mod audit;
mod check;
mod command;
mod credentials;
mod cron;
mod dead;
mod demo;
mod doctor;
mod document;
mod enqueue;
mod exec;
mod executable;
mod exit_code;
mod grant;
mod graph;
mod group;
mod guard;
mod host;
mod import;
mod jobs;
mod lock;
mod lock_wait;
mod manifest;
mod manual;
mod metrics;
mod outbox;
mod output;
mod pause;
mod place;
mod printed;
mod process_group;
mod rate;
mod reason;
mod relay;
mod send_signal;
mod session;
mod shards;
mod signal;
mod similar;
mod status;
mod step;
mod stored;
mod task;
mod tokens;
mod top;
mod typed;
mod upcoming;
mod web;
mod worker;
mod workers;

use std::num::ParseIntError;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use command::commands;
use trax_terminal::{Failure, USAGE};

/// The exit codes that scripts may rely on.
const EXIT_CODES: &str = "Exit codes:
  0   done
  1   failed: the server refused or cannot be reached, or there is no such job
  2   unhealthy: status, check or another check found something wrong
  3   timeout: the event that the command waited for did not happen
  64  usage error: arguments, input or files that cannot be read";

/// A job scheduler inside PostgreSQL: run workers, enqueue jobs, operate it.
#[derive(Parser)]
#[command(
    name = "trax",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(after_help = EXIT_CODES)]
struct Arguments {
    /// The database; default DATABASE_URL, or else PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD
    /// and PGPASSFILE. A worker takes several
    #[arg(long, global = true, value_name = "URL", help_heading = "Database")]
    database_url: Vec<String>,
    #[command(subcommand)]
    command: Command,
}

commands! {
    /// Run a small real workload on a temporary server, watch it, and check the counts
    Demo(demo::Arguments) => demo::run,
    /// Claim jobs and run a program for each
    Worker(worker::Arguments) => worker::run,
    /// Run a command once in the life of the job whose program calls it, or wait
    Step(step::Arguments) => step::run,
    /// Carry jobs from the outboxes of databases without trax
    Relay(relay::Arguments) => relay::run,
    /// Run a program while holding a token that a limited number may hold at once
    Lock(lock::Arguments) => lock::run,
    /// Queue jobs and print their ids
    Enqueue(enqueue::Arguments) => enqueue::run,
    /// Send a signal to a job, which waits for it now or later
    Signal(send_signal::Arguments) => send_signal::run,
    /// Show what runs, what is missing and how to fix it; exit code 2 if something is wrong
    Status(status::Arguments) => status::run,
    /// Verify every invariant; exit code 2 if one is violated
    Check(check::Arguments) => check::run,
    /// Watch rates, queues, groups, workers and tasks; cancel, pause and retry by key
    Top(top::Arguments) => top::run,
    /// Serve pages for a browser: what runs, waits and fails, and what to do about it
    Web(web::Arguments) => web::run,
    /// Diagnose what is wrong, and print commands that fix it; exit code 2 if something is
    Doctor(doctor::Arguments) => doctor::run,
    /// Print metrics for Prometheus, or serve them
    Metrics(metrics::Arguments) => metrics::run,
    /// Turn crontabs and the jobs of pg_cron into manifests
    #[command(subcommand, after_help = import::HELP)]
    Import(import::Command) => import::run,
    /// List, show, cancel, retry and watch jobs
    #[command(subcommand)]
    Jobs(jobs::Command) => jobs::run,
    /// Queue jobs of which some need others, and show how far they are
    #[command(subcommand)]
    Graph(graph::Command) => graph::run,
    /// List, show, requeue and acknowledge jobs that failed for good
    #[command(subcommand)]
    Dead(dead::Command) => dead::run,
    /// List, apply, enable, disable and trigger manifests
    #[command(subcommand)]
    Manifest(manifest::Command) => manifest::run,
    /// List, limit, pause and resume groups
    #[command(subcommand)]
    Group(group::Command) => group::run,
    /// List, set, close and drop rates: how much may start in a time
    #[command(subcommand)]
    Rate(rate::Command) => rate::run,
    /// List, change and reset the defaults of tasks
    #[command(subcommand)]
    Task(task::Command) => task::run,
    /// List the workers that execute jobs
    Workers(workers::Arguments) => workers::run,
    /// List the holders of tokens (trax lock, trax.acquire_token) and those who wait for them
    Tokens(tokens::Arguments) => tokens::run,
    /// List who did what: cancellations, changes of schedules and groups, grants
    Audit(audit::Arguments) => audit::run,
    /// Pause the scheduler of this database, even across restarts; workers continue
    Pause(pause::Arguments) => pause::run,
    /// Resume the paused scheduler
    Resume(pause::ResumeArguments) => pause::resume,
    /// Explain a cron expression and show when it fires
    #[command(subcommand)]
    Cron(cron::Command) => cron::run,
    /// Allow a role to read, produce, work or do everything
    Grant(grant::Arguments) => grant::run,
    /// Print a completion script for a shell
    Completions(manual::CompletionArguments) => manual::completions,
    /// Print or write manual pages
    Man(manual::ManArguments) => manual::man,
    /// Measure this server, and compare it with what PostgreSQL itself can do there
    Bench(trax_bench::Arguments) => trax_bench::run,
}

fn main() -> ExitCode {
    if let Some(code) = guard::run_if_named() {
        return code;
    }
    let arguments = match typed::parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("cannot start: {error}")).report(),
    };
    let code = match runtime.block_on(with_urls(arguments)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    // A handler that blocks its thread must not keep the process alive.
    runtime.shutdown_background();
    code
}

/// Runs the command with its database, or a worker with all databases given.
async fn with_urls(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments {
        database_url,
        mut command,
    } = arguments;
    let mut urls = database_url.into_iter();
    let first = urls.next();
    let others: Vec<String> = urls.collect();
    match &mut command {
        Command::Worker(worker) => worker.also(others),
        _ if !others.is_empty() => {
            return Err(Failure::usage(
                "only trax worker takes --database-url more than once",
            )
            .hint("specify one of them, or the address of a router, which stands for all its shards"));
        }
        _ => {}
    }
    run(first, command).await
}

/// Prints help and version on request; any other result is a usage error.
fn usage(mut error: clap::Error) -> ExitCode {
    keep_near(&mut error);
    explain_number(&mut error);
    // A reader that stops early, such as head, is not an error.
    if let Err(error) = error.print()
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("trax: {error}");
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(USAGE),
    }
}

/// Adds to the parser's refusal of a number how to write one.
fn explain_number(error: &mut clap::Error) {
    let is_of_number =
        std::error::Error::source(error).is_some_and(|source| source.is::<ParseIntError>());
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidValue) else {
        return;
    };
    if is_of_number {
        let tip = match typed.split_once(',') {
            Some(_) => format!("separate numbers with blanks: {}", typed.replace(',', " ")),
            None => "write a whole number, such as 5".to_owned(),
        };
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
}

/// Removes suggestions that are not similar to the word that was typed.
fn keep_near(error: &mut clap::Error) {
    for (typed, suggested) in [
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(typed)) = error.get(typed).cloned() else {
            continue;
        };
        let names = match error.remove(suggested) {
            Some(ContextValue::String(name)) => vec![name],
            Some(ContextValue::Strings(names)) => names,
            _ => continue,
        };
        let near: Vec<String> = names
            .into_iter()
            .filter(|name| is_near(&typed, name))
            .collect();
        if !near.is_empty() {
            error.insert(suggested, ContextValue::Strings(near));
        }
    }
}

/// Returns whether at most half of the letters differ.
fn is_near(typed: &str, name: &str) -> bool {
    let letters = typed.chars().count().max(name.chars().count());
    2 * similar::distance(typed, name) <= letters
}
