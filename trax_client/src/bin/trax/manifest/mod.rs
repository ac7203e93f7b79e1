//! `trax manifest`: stored definitions of what runs and when.

mod apply;
mod change;
mod difference;
mod document;
mod forecast;
mod list;
mod show;

use std::process::ExitCode;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// The manifests, with their schedules and next runs
    List(list::Arguments),
    /// Everything about a manifest: definition, state, next and last runs
    Show(show::Arguments),
    /// Make the manifests and groups of files so; shows the difference first, and asks
    Apply(apply::Arguments),
    /// Show what apply would change
    Diff(apply::DiffArguments),
    /// Switch manifests on; what they missed is not made up for
    Enable(change::Arguments),
    /// Switch manifests off; what waits or runs goes on
    Disable(change::Arguments),
    /// Queue a job of a manifest now; prints its id
    Trigger(change::TriggerArguments),
    /// The next runs of a manifest
    Preview(forecast::Arguments),
    /// Why a manifest does or does not run now
    Why(forecast::WhyArguments),
    /// Forget manifests and cancel their waiting jobs; asks
    Delete(change::DeleteArguments),
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::List(arguments) => list::run(url, arguments).await,
        Command::Show(arguments) => show::run(url, arguments).await,
        Command::Apply(arguments) => apply::run(url, arguments).await,
        Command::Diff(arguments) => apply::diff(url, arguments).await,
        Command::Enable(arguments) => change::switch(url, arguments, true).await,
        Command::Disable(arguments) => change::switch(url, arguments, false).await,
        Command::Trigger(arguments) => change::trigger(url, arguments).await,
        Command::Preview(arguments) => forecast::preview(url, arguments).await,
        Command::Why(arguments) => forecast::why(url, arguments).await,
        Command::Delete(arguments) => change::delete(url, arguments).await,
    }
}

/// No manifest has this name.
fn unknown(name: &str) -> Failure {
    Failure::new(format!("manifest \"{name}\" does not exist"))
        .hint("see the names with: trax manifest list")
}
