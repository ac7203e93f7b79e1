//! `trax jobs retry`: a job runs again: one that waits for its next attempt now, an ended one as a
//! fresh job.
//!
//! A failed job whose dead letter waits is requeued through it, which keeps every option it had and
//! lets its manifest continue. Any other ended job is queued again: by its manifest when that still
//! exists, else with its task, input, group and priority, and what its dead letter knows beyond
//! that. History keeps no more. It is read where it ended, and queued at the address: a router puts
//! it where its group is now.

use std::process::ExitCode;
use std::time::SystemTime;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_client::{JobId, Json, RunNow};

use super::show::{Job, find};
use super::unknown;
use crate::output::Options;
use crate::session::{Argument, Session};
use trax_terminal::{FAILED, Failure};

const JOB_ENDED: &str = include_str!("../query/job_ended.sql");
const JOB_ENQUEUE: &str = include_str!("../query/job_enqueue.sql");
const MANIFEST_SINCE: &str = include_str!("../query/manifest_since.sql");

#[derive(clap::Args)]
#[command(after_help = "\
A job that waits for its next attempt can be claimed at once. One that failed
for good is requeued through its dead letter, with all its options. Any other
ended job is queued anew: by its manifest or, without one, with its task, input,
group and priority.")]
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

/// Which job runs in place of which: itself, when it waited.
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
    if let (Some(letter), Some("awaiting_intervention")) =
        (job.dead_letter_id, job.dead_letter_status.as_deref())
    {
        let new = session.client().requeue_dead_letter(letter, None).await?;
        return Ok(RetriedJob {
            job_id: id,
            new_job_id: new.0,
            via: "dead_letter",
        });
    }
    let ended = session.find(JOB_ENDED, &[(&id, Type::INT8)]).await?;
    let ended = ended.first().ok_or_else(|| unknown(session, id))?;
    let (new_job_id, via) = match manifest_of(session, ended).await? {
        Some(name) => {
            let input: Json = ended.try_get("input")?;
            let new = session.client().trigger(&name, Some(input)).await?;
            (new.0, "manifest")
        }
        None => (enqueue(session, ended).await?, "enqueue"),
    };
    Ok(RetriedJob {
        job_id: id,
        new_job_id,
        via,
    })
}

/// Returns the manifest that an ended job came from, when that still exists: at a router it may
/// have moved to another shard since.
async fn manifest_of(session: &Session, ended: &Row) -> Result<Option<String>, Failure> {
    let name: Option<String> = ended.try_get("manifest")?;
    let is_there: bool = ended.try_get("has_manifest")?;
    if name.is_none() || is_there || !session.is_router() {
        return Ok(name.filter(|_| is_there));
    }
    let queued_at: SystemTime = ended.try_get("queued_at")?;
    let arguments: &[Argument<'_>] = &[(&name, Type::TEXT), (&queued_at, Type::TIMESTAMPTZ)];
    let moved = session.find(MANIFEST_SINCE, arguments).await?;
    Ok(name.filter(|_| !moved.is_empty()))
}

/// Queues a job with what is known of an ended one.
async fn enqueue(session: &Session, ended: &Row) -> Result<i64, Failure> {
    let text = |column: &str| ended.try_get::<_, Option<String>>(column);
    let (input, trace): (Json, Option<Json>) = (ended.try_get("input")?, ended.try_get("trace")?);
    let priority: i32 = ended.try_get("priority")?;
    let max_retries: Option<i32> = ended.try_get("max_retries")?;
    let new = session
        .value(
            JOB_ENQUEUE,
            &[
                (&text("task")?, Type::TEXT),
                (&input, Type::JSONB),
                (&text("group_name")?, Type::TEXT),
                (&priority, Type::INT4),
                (&max_retries, Type::INT4),
                (&text("timeout")?, Type::TEXT),
                (&text("retry_delay")?, Type::TEXT),
                (&text("unique_key")?, Type::TEXT),
                (&text("concurrency_key")?, Type::TEXT),
                (&trace, Type::JSONB),
            ],
        )
        .await?;
    Ok(new)
}

/// Returns a waiting job, before its time.
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
        Failure::new(format!("job {id} is waiting until another job ends"))
            .hint(format!("to see why: trax jobs show {id}"))
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
