//! `trax jobs`: look at jobs, cancel them, run them again, wait for them.

mod cancel;
mod list;
mod retry;
mod show;
mod watch;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::output::Tone;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// The newest jobs that match all filters, waiting, executing and ended
    List(list::Arguments),
    /// Everything about a job: its attempts, errors, input and output
    Show(show::Arguments),
    /// Cancel jobs: those that wait end, the workers of the others are asked to stop
    Cancel(cancel::Arguments),
    /// Run ended jobs again, each as a fresh job
    Retry(retry::Arguments),
    /// Follow jobs until they have ended; the exit code says how
    Watch(watch::Arguments),
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::List(arguments) => list::run(url, arguments).await,
        Command::Show(arguments) => show::run(url, arguments).await,
        Command::Cancel(arguments) => cancel::run(url, arguments).await,
        Command::Retry(arguments) => retry::run(url, arguments).await,
        Command::Watch(arguments) => watch::run(url, arguments).await,
    }
}

/// What a state means to its reader.
pub(crate) fn tone(state: &str) -> Tone {
    match state {
        "completed" => Tone::Good,
        "failed" => Tone::Bad,
        "in_progress" => Tone::Active,
        "cancelled" => Tone::Dim,
        _ => Tone::Plain,
    }
}

/// No job has this id.
fn unknown(job_id: i64) -> Failure {
    Failure::new(format!("job {job_id} does not exist"))
        .hint("ended jobs are kept for trax.run_retention; see: trax jobs list")
}
