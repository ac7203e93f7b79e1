//! `trax jobs retry`: runs a job again. A job that waits for its next attempt runs now, an ended
//! one as a new job.
//!
//! A failed job with an open dead letter is requeued through it, which keeps all its options and
//! lets its manifest continue. Any other ended job is queued again: by its manifest if that still
//! exists, otherwise with its task, input, group, priority and version, and the options in its dead
//! letter; the history has no more. `trax.audit` has each. A job is read from the shard where it
//! ended and queued at the address: a router puts it on the current shard of its group.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::{JobId, RunNow};

use super::show::{Job, find};
use super::unknown;
use crate::output::Options;
use crate::session::{Argument, Session};
use trax_terminal::{Again, EndedJob, FAILED, Failure};

#[derive(clap::Args)]
#[command(after_help = "\
A job that waits for its next attempt can be claimed at once. One that failed
for good is requeued through its dead letter, with all its options. Any other
ended job is queued anew: by its manifest or, without one, with its task, input,
group, priority and version.")]
pub(crate) struct Arguments {
    /// The jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    /// Also completed jobs
    #[arg(long)]
    completed: bool,
    /// Also jobs that wait for their first attempt
    #[arg(long)]
    scheduled: bool,
    #[command(flatten)]
    output: Options,
}

/// A job and the one that replaces it; a waiting job replaces itself.
#[derive(Serialize)]
struct RetriedJob {
    job_id: i64,
    new_job_id: i64,
    via: &'static str,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let (mut changes, mut refused) = (Vec::new(), false);
    for &id in &arguments.ids {
        match again(&session, id, &arguments).await {
            Ok(change) => changes.push(change),
            Err(failure) => {
                failure.report();
                refused = true;
            }
        }
    }
    arguments.output.changes(&changes, |change| {
        let (job, new) = (change.job_id, change.new_job_id);
        if job == new {
            format!("job {job} is now ready")
        } else {
            format!("job {job} runs again as job {new}")
        }
    })?;
    Ok(if refused {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

async fn again(session: &Session, id: i64, arguments: &Arguments) -> Result<RetriedJob, Failure> {
    let job = find(session, id)
        .await?
        .ok_or_else(|| unknown(session, id))?;
    if job.state == "queued" {
        return now(session, &job, arguments.scheduled).await;
    }
    refuse(&job, arguments.completed)?;
    let ended = ended_job(session, id).await?;
    let again = ended.again();
    let new_job_id = queue(session, ended).await?;
    if again != Again::DeadLetter {
        let (old, new) = (id.to_string(), new_job_id.to_string());
        let arguments: &[Argument<'_>] = &[(&old, Type::TEXT), (&new, Type::TEXT)];
        session.find(EndedJob::RECORD, arguments).await?;
    }
    Ok(RetriedJob {
        job_id: id,
        new_job_id,
        via: match again {
            Again::DeadLetter => "dead_letter",
            Again::Manifest => "manifest",
            Again::Enqueue | Again::EnqueueSql => "enqueue",
        },
    })
}

/// Returns an ended job with its options. At a router its manifest may have moved to another shard
/// since.
async fn ended_job(session: &Session, id: i64) -> Result<EndedJob, Failure> {
    let rows = session
        .find(EndedJob::READ, &[(&id.to_string(), Type::TEXT)])
        .await?;
    let row = rows.first().ok_or_else(|| unknown(session, id))?;
    let mut ended = EndedJob::of(row)?;
    if let Some([name, at]) = ended.gone()
        && session.is_router()
    {
        let arguments: &[Argument<'_>] = &[(&name, Type::TEXT), (&at, Type::TEXT)];
        if !session
            .find(EndedJob::FIND_MANIFEST, arguments)
            .await?
            .is_empty()
        {
            ended.set_found();
        }
    }
    Ok(ended)
}

/// Queues the job again and returns the new job's id.
async fn queue(session: &Session, ended: EndedJob) -> Result<i64, Failure> {
    let statement = ended.again().statement();
    let values = ended.into_values();
    let arguments: Vec<Argument<'_>> = values
        .iter()
        .map(|value| (value as _, Type::TEXT))
        .collect();
    let new: String = session.value(statement, &arguments).await?;
    Ok(new.parse().expect("the id of a job is a number"))
}

/// Makes a waiting job run now.
async fn now(session: &Session, job: &Job, scheduled: bool) -> Result<RetriedJob, Failure> {
    let id = job.job_id;
    if job.waits_for.as_deref() == Some("time") && job.attempt == 0 && !scheduled {
        return Err(
            Failure::new(format!("job {id} is waiting for its first attempt")).hint(format!(
                "use --scheduled to run it now anyway; to see when it is due: trax jobs show {id}"
            )),
        );
    }
    let blocked = || {
        let wait = match job.waits_for.as_deref() {
            Some("signal") => "for a signal",
            _ => "until another job ends",
        };
        Failure::new(format!("job {id} is waiting {wait}"))
            .hint(format!("to see more: trax jobs why {id}"))
    };
    match job.waits_for.as_deref() {
        Some("time") => {}
        Some(_) => return Err(blocked()),
        None => {
            return Err(Failure::new(format!("job {id} is already ready"))
                .hint("no worker has claimed it yet; to see the workers: trax workers"));
        }
    }
    match session.client().run_now(JobId(id)).await? {
        RunNow::Ready => Ok(RetriedJob {
            job_id: id,
            new_job_id: id,
            via: "run_now",
        }),
        RunNow::Blocked => Err(blocked()),
        RunNow::InProgress => Err(executing(id)),
        RunNow::Finished => Err(Failure::new(format!("job {id} has just ended"))
            .hint(format!("see: trax jobs show {id}"))),
        RunNow::Unknown => Err(unknown(session, id)),
    }
}

fn executing(id: i64) -> Failure {
    Failure::new(format!("job {id} is being executed"))
        .hint(format!("to wait for it: trax jobs watch {id}"))
}

fn refuse(job: &Job, completed: bool) -> Result<(), Failure> {
    let id = job.job_id;
    match (job.state.as_str(), job.requeued_job_id) {
        ("in_progress", _) => Err(executing(id)),
        ("completed", _) if !completed => Err(Failure::new(format!("job {id} is completed"))
            .hint("use --completed to run it again anyway")),
        (_, Some(next)) => Err(Failure::new(format!("job {id} has already been requeued"))
            .hint(format!("see: trax jobs show {next}"))),
        _ => Ok(()),
    }
}
