//! `trax jobs retry`: an ended job runs again, as a fresh job.
//!
//! A failed job whose dead letter waits is requeued through it, which keeps every option it had and lets its manifest
//! go on. Any other ended job is queued anew: by its manifest when that still exists, else with its task, input,
//! group and priority, and what its dead letter knows beyond that. History keeps no more.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;

use super::show::{Job, find};
use super::unknown;
use crate::failure::{FAILED, Failure};
use crate::output::Options;
use crate::session::Session;

const JOB_AGAIN: &str = include_str!("../query/job_again.sql");

#[derive(clap::Args)]
#[command(after_help = "\
A job that failed for good is requeued through its dead letter, with all its
options. Any other ended job is queued anew: by its manifest or, without one,
with its task, input, group and priority. A job that waits for its next attempt
is not touched.")]
pub(crate) struct Arguments {
    /// The jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    /// Completed jobs too
    #[arg(long)]
    completed: bool,
    #[command(flatten)]
    output: Options,
}

/// Which job runs in place of which.
#[derive(Serialize)]
struct Change {
    job_id: i64,
    new_job_id: i64,
    via: &'static str,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let (mut changes, mut refused) = (Vec::new(), false);
    for &id in &arguments.ids {
        match again(&session, id, arguments.completed).await {
            Ok(change) => changes.push(change),
            Err(failure) => {
                failure.report();
                refused = true;
            }
        }
    }
    arguments.output.changes(&changes, |change| {
        format!(
            "job {} runs again as job {}",
            change.job_id, change.new_job_id
        )
    })?;
    Ok(if refused {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

async fn again(session: &Session, id: i64, completed: bool) -> Result<Change, Failure> {
    let job = find(session, id).await?.ok_or_else(|| unknown(id))?;
    refuse(&job, completed)?;
    if let (Some(letter), Some("awaiting_intervention")) =
        (job.dead_letter_id, job.dead_letter_status.as_deref())
    {
        let new = session.client().requeue_dead_letter(letter, None).await?;
        return Ok(Change {
            job_id: id,
            new_job_id: new.0,
            via: "dead_letter",
        });
    }
    let rows = session.rows(JOB_AGAIN, &[(&id, Type::INT8)]).await?;
    let row = rows.first().ok_or_else(|| unknown(id))?;
    let by_manifest: bool = row.try_get("by_manifest")?;
    Ok(Change {
        job_id: id,
        new_job_id: row.try_get("job_id")?,
        via: if by_manifest { "manifest" } else { "enqueue" },
    })
}

fn refuse(job: &Job, completed: bool) -> Result<(), Failure> {
    let id = job.job_id;
    match (job.state.as_str(), job.requeued_job_id) {
        ("queued", _) => Err(Failure::new(format!("job {id} waits already"))
            .hint(format!("when it is due: trax jobs show {id}"))),
        ("in_progress", _) => Err(Failure::new(format!("job {id} is being executed"))
            .hint(format!("wait for it: trax jobs watch {id}"))),
        ("completed", _) if !completed => Err(Failure::new(format!("job {id} is completed"))
            .hint("give --completed to run it again all the same")),
        (_, Some(next)) => Err(Failure::new(format!("job {id} was requeued before"))
            .hint(format!("see: trax jobs show {next}"))),
        _ => Ok(()),
    }
}
