//! `trax jobs cancel`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::{Cancelled, JobId};

use crate::output::{Consent, Options, confirmed};
use crate::session::Session;
use trax_terminal::{FAILED, Failure};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The jobs
    #[arg(required_unless_present_any = ["manifest", "group"], value_name = "ID")]
    ids: Vec<i64>,
    /// All live jobs of this manifest
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ids", "group"])]
    manifest: Option<String>,
    /// All live jobs of this group
    #[arg(long, value_name = "GROUP", conflicts_with = "ids")]
    group: Option<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    output: Options,
}

/// What became of one job.
#[derive(Serialize)]
struct CancelledJob {
    job_id: i64,
    result: &'static str,
}

/// How many jobs of a manifest or group were cancelled.
#[derive(Serialize)]
struct CancelledCount {
    kind: &'static str,
    name: String,
    cancelled: i64,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let many = match (&arguments.manifest, &arguments.group) {
        (Some(name), _) => Some(("manifest", name, "select trax.cancel_manifest($1)")),
        (None, Some(name)) => Some(("group", name, "select trax.cancel_group($1)")),
        (None, None) => None,
    };
    let Some((kind, name, sql)) = many else {
        return each(&session, &arguments).await;
    };
    let question = format!("Cancel all live jobs of {kind} \"{name}\"?");
    if !confirmed(arguments.consent, &question)? {
        arguments.output.note("nothing was cancelled");
        return Ok(ExitCode::from(FAILED));
    }
    let cancelled = session.value(sql, &[(name, Type::TEXT)]).await?;
    let name = name.clone();
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
    Ok(ExitCode::SUCCESS)
}

async fn each(session: &Session, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut changes = Vec::new();
    for &job_id in &arguments.ids {
        let result = match session.client().cancel(JobId(job_id)).await? {
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
