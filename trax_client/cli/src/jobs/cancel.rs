//! `trax jobs cancel`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::{Cancelled, JobId};

use crate::output::{Consent, Options, confirmed};
use crate::session::{Argument, Session};
use crate::similar::{self, Kind, explained};
use trax_terminal::{Connection, FAILED, Failure};

const JOB_CANCEL_MANY: &str = include_str!("../query/job_cancel_many.sql");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The jobs
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    /// All live jobs of this manifest
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ids", "group", "task", "all"])]
    manifest: Option<String>,
    /// All live jobs of this group
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["ids", "task", "all"])]
    group: Option<String>,
    /// All live jobs of this task
    #[arg(long, value_name = "TASK", conflicts_with_all = ["ids", "all"])]
    task: Option<String>,
    /// All live jobs of this database
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// These jobs alone, not those that they have spawned
    #[arg(long, conflicts_with_all = ["manifest", "group", "task", "all"])]
    alone: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    output: Options,
}

/// The result for one job.
#[derive(Serialize)]
struct CancelledJob {
    job_id: i64,
    result: &'static str,
}

/// The number of cancelled jobs of a manifest, group, task or database.
#[derive(Serialize)]
struct CancelledCount {
    kind: &'static str,
    name: String,
    cancelled: i64,
}

/// The selection of live jobs.
enum Which<'a> {
    Manifest(&'a str),
    Group(&'a str),
    Task(&'a str),
    All(&'a str),
}

impl<'a> Which<'a> {
    fn of(arguments: &'a Arguments, database: &'a str) -> Option<Self> {
        let Arguments {
            manifest,
            group,
            task,
            all,
            ..
        } = arguments;
        match (manifest, group, task) {
            (Some(name), _, _) => Some(Which::Manifest(name)),
            (_, Some(name), _) => Some(Which::Group(name)),
            (_, _, Some(name)) => Some(Which::Task(name)),
            _ => all.then_some(Which::All(database)),
        }
    }

    fn words(&self) -> (&'static str, &'a str) {
        match self {
            Which::Manifest(name) => ("manifest", name),
            Which::Group(name) => ("group", name),
            Which::Task(name) => ("task", name),
            Which::All(name) => ("database", name),
        }
    }

    /// Cancels the selected jobs and returns their number.
    async fn cancel(&self, session: &Session) -> Result<i64, Failure> {
        let client = session.client();
        match self {
            Which::Manifest(name) => match client.cancel_manifest(name).await {
                Ok(count) => Ok(count),
                Err(error) => Err(explained(session, name, error).await),
            },
            Which::Group(name) => match client.cancel_group(name).await {
                Ok(count) => Ok(count),
                Err(error) => Err(explained(session, name, error).await),
            },
            Which::Task(name) => in_all(session, Some(name)).await,
            Which::All(_) => in_all(session, None).await,
        }
    }
}

/// The number of jobs cancelled in one transaction.
const BATCH: i64 = 500;

/// Cancels the live jobs of a task, or of all tasks, that were queued before this call.
async fn in_all(session: &Session, task: Option<&str>) -> Result<i64, Failure> {
    let mut cancelled = 0;
    for database in session.databases().await? {
        cancelled += some_at_a_time(database, task).await?;
    }
    Ok(cancelled)
}

async fn some_at_a_time(database: &Connection, task: Option<&str>) -> Result<i64, Failure> {
    let sql = "select greatest((select max(q.job_id) from trax.work_queue q), \
               (select max(l.job_id) from trax.lease l))";
    let last: Option<i64> = database.query_typed_one(sql, &[]).await?.try_get(0)?;
    let (mut cancelled, mut after) = (0, 0_i64);
    let Some(last) = last else { return Ok(0) };
    loop {
        let arguments: [Argument<'_>; 4] = [
            (&task, Type::TEXT),
            (&after, Type::INT8),
            (&last, Type::INT8),
            (&BATCH, Type::INT8),
        ];
        let rows = database.query_typed(JOB_CANCEL_MANY, &arguments).await?;
        let Some(row) = rows.first() else {
            return Ok(cancelled);
        };
        cancelled += row.try_get::<_, i64>(0)?;
        match row.try_get(2)? {
            Some(newest) if row.try_get::<_, i64>(1)? == BATCH => after = newest,
            _ => return Ok(cancelled),
        }
    }
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.ids.is_empty() && Which::of(&arguments, "").is_none() {
        return Err(Failure::usage("no job is specified").hint(
            "type ids, or --manifest, --group or --task with a name, or --all for all live jobs",
        ));
    }
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let database: String = session
        .value("select pg_catalog.current_database()::text", &[])
        .await?;
    let Some(which) = Which::of(&arguments, &database) else {
        return each(&session, &arguments).await;
    };
    let (kind, name) = which.words();
    let question = format!("Cancel all live jobs of {kind} \"{name}\"?");
    if !confirmed(arguments.consent, &question)? {
        arguments.output.note("nothing was cancelled");
        return Ok(ExitCode::from(FAILED));
    }
    let cancelled = which.cancel(&session).await?;
    if cancelled == 0 {
        let name = [name.to_owned()];
        let filter = match which {
            Which::Task(_) => Some(Kind::Task),
            Which::Group(_) => Some(Kind::Group),
            Which::Manifest(_) | Which::All(_) => None,
        };
        let filters: Vec<_> = filter
            .map(|kind| (kind, name.as_slice()))
            .into_iter()
            .collect();
        similar::note(&session, &arguments.output, &filters).await;
    }
    let name = name.to_owned();
    let many = CancelledCount {
        kind,
        name,
        cancelled,
    };
    arguments.output.changes(&[many], |many| {
        format!(
            "{} jobs of {} \"{}\" cancelled",
            many.cancelled, many.kind, many.name
        )
    })?;
    Ok(session.outcome())
}

async fn each(session: &Session, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut changes = Vec::new();
    for &job_id in &arguments.ids {
        let (client, id) = (session.client(), JobId(job_id));
        let cancelled = match arguments.alone {
            true => client.cancel_alone(id).await?,
            false => client.cancel(id).await?,
        };
        let result = match cancelled {
            Cancelled::Cancelled => "cancelled",
            Cancelled::Requested => "requested",
            Cancelled::Finished => "finished",
            Cancelled::Unknown => "unknown",
        };
        changes.push(CancelledJob { job_id, result });
    }
    arguments.output.changes(&changes, |change| {
        let job = change.job_id;
        match change.result {
            "cancelled" => format!("job {job} cancelled"),
            "requested" => format!("job {job}: its worker was asked to stop it"),
            "finished" => format!("job {job} had already ended"),
            _ => format!("job {job} does not exist"),
        }
    })?;
    let all = changes
        .iter()
        .all(|change| matches!(change.result, "cancelled" | "requested"));
    Ok(if all {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}
