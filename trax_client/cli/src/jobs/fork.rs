//! `trax jobs fork`: queues a job like one that has ended, with its steps up to a place.

use std::process::ExitCode;

use serde::Serialize;
use trax_client::{Error, JobId, Json};

use super::unknown;
use crate::output::Options;
use crate::session::Session;
use trax_terminal::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The ended job
    #[arg(value_name = "ID")]
    id: i64,
    /// The first step that runs again; without it, the new job has all recorded steps
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// The input of the new job, as JSON; without it, that of the ended job
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    #[command(flatten)]
    output: Options,
}

/// A job and its fork.
#[derive(Serialize)]
struct ForkedJob {
    job_id: i64,
    new_job_id: i64,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let input: Option<Json> = arguments
        .input
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| Failure::usage(format!("the input is not JSON: {error}")))?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let id = arguments.id;
    let forked = session
        .client()
        .fork(JobId(id), arguments.from.as_deref(), input)
        .await;
    let JobId(new_job_id) = match forked {
        Ok(forked) => forked,
        Err(Error::UnknownName(_)) => return Err(unknown(&session, id)),
        Err(error) => return Err(error.into()),
    };
    let change = ForkedJob {
        job_id: id,
        new_job_id,
    };
    arguments.output.changes(&[change], |change| {
        format!(
            "job {} continues as job {}",
            change.job_id, change.new_job_id
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
