//! `trax jobs change`: changes jobs while they wait.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use trax_client::{Changed, JobChange, JobId, Json};

use crate::output::Options;
use crate::session::Session;
use trax_terminal::{FAILED, Failure, duration};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    /// The input, as JSON
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Not claimable before this time, in PostgreSQL's syntax and your time zone
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,
    /// 0 to 31, higher first
    #[arg(long, value_name = "N")]
    priority: Option<i32>,
    /// The group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Attempts after the first
    #[arg(long, value_name = "N")]
    max_retries: Option<i32>,
    /// How long one attempt may run
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    output: Options,
}

/// The result for one job.
#[derive(Serialize)]
struct ChangedJob {
    job_id: i64,
    result: &'static str,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let input: Option<Json> = arguments
        .input
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| Failure::usage(format!("the input is not JSON: {error}")))?;
    let nothing = input.is_none()
        && arguments.run_at.is_none()
        && arguments.priority.is_none()
        && arguments.group.is_none()
        && arguments.max_retries.is_none()
        && arguments.timeout.is_none();
    if nothing {
        return Err(Failure::usage("nothing to change")
            .hint("use --input, --run-at, --priority, --group, --max-retries or --timeout"));
    }
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let change = change(&session, &arguments, input).await?;
    let mut changes = Vec::new();
    for &job_id in &arguments.ids {
        let result = match session.client().change_job(JobId(job_id), &change).await? {
            Changed::Changed => "changed",
            Changed::Suspended => "suspended",
            Changed::InProgress => "in_progress",
            Changed::Finished => "finished",
            Changed::Unknown => "unknown",
        };
        changes.push(ChangedJob { job_id, result });
    }
    arguments.output.changes(&changes, |change| {
        let job = change.job_id;
        match change.result {
            "changed" => format!("job {job} changed"),
            "suspended" => format!("job {job} waits for a signal or for jobs, and has no time"),
            "in_progress" => format!("job {job} is executed, and was not changed"),
            "finished" => format!("job {job} had already ended"),
            _ => format!("job {job} does not exist"),
        }
    })?;
    let all = changes.iter().all(|change| change.result == "changed");
    Ok(if all {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

async fn change(
    session: &Session,
    arguments: &Arguments,
    input: Option<Json>,
) -> Result<JobChange, Failure> {
    let mut change = JobChange::new();
    if let Some(input) = input {
        change = change.input(input);
    }
    if let Some(text) = &arguments.run_at {
        change = change.run_at(session.time(text).await?);
    }
    if let Some(priority) = arguments.priority {
        change = change.priority(priority);
    }
    if let Some(group) = &arguments.group {
        change = change.group(group);
    }
    if let Some(retries) = arguments.max_retries {
        change = change.max_retries(retries);
    }
    if let Some(timeout) = arguments.timeout {
        change = change.timeout(timeout);
    }
    Ok(change)
}
