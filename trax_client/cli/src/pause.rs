//! `trax pause` and `trax resume`: pauses and resumes the scheduler of the database.

use std::process::ExitCode;

use serde::Serialize;

use crate::output::Options;
use crate::session::Session;
use trax_terminal::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The reason, shown by trax status
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    output: Options,
}

#[derive(Serialize)]
struct SchedulerChange {
    scheduler: &'static str,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    session.client().pause(arguments.reason.as_deref()).await?;
    let scheduler = "paused";
    arguments
        .output
        .changes(&[SchedulerChange { scheduler }], |_| {
            "the scheduler is paused: nothing becomes due until trax resume; workers continue"
                .to_owned()
        })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn resume(
    url: Option<String>,
    arguments: ResumeArguments,
) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    session.client().resume().await?;
    let scheduler = "resumed";
    arguments
        .output
        .changes(&[SchedulerChange { scheduler }], |_| {
            "the scheduler is running again".to_owned()
        })?;
    Ok(ExitCode::SUCCESS)
}
