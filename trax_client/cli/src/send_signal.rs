//! `trax signal`: sends a signal to a job.

use std::process::ExitCode;

use serde::Serialize;
use trax_client::{JobId, Json, Sent};

use crate::output::Options;
use crate::session::Session;
use trax_terminal::{FAILED, Failure};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  trax signal 7 approved
  trax signal 7 click '{\"from\": \"mail\"}' --signal-id 3f2a")]
pub(crate) struct Arguments {
    /// The job
    #[arg(value_name = "ID")]
    id: i64,
    /// The name of the signal that the job waits for, now or later
    name: String,
    /// The payload of the signal, as JSON
    #[arg(default_value = "null", hide_default_value = true)]
    payload: String,
    /// A second signal with this id to the job is a duplicate, and not sent
    #[arg(long, value_name = "ID")]
    signal_id: Option<String>,
    #[command(flatten)]
    output: Options,
}

/// The result.
#[derive(Serialize)]
struct SentSignal {
    job_id: i64,
    result: &'static str,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let payload: Json = arguments.payload.parse().map_err(|error| {
        Failure::usage(format!("the payload is not JSON: {error}"))
            .hint("a text needs quotes of its own: trax signal 7 click '\"yes\"'")
    })?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let (id, name) = (arguments.id, arguments.name.as_str());
    let signal_id = arguments.signal_id.as_deref();
    let sent = session
        .client()
        .send_signal(JobId(id), name, &payload, signal_id)
        .await?;
    let result = match sent {
        Sent::Sent => "sent",
        Sent::Duplicate => "duplicate",
        Sent::Ended => "ended",
        Sent::Unknown => return Err(crate::jobs::unknown(&session, id)),
    };
    let change = SentSignal { job_id: id, result };
    arguments
        .output
        .changes(&[change], |change| match change.result {
            "duplicate" => format!("job {id} had a signal with this id before"),
            "ended" => format!("job {id} has ended: nothing was sent"),
            _ => format!("job {id} has the signal {name}"),
        })?;
    Ok(match sent {
        Sent::Ended => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    })
}
