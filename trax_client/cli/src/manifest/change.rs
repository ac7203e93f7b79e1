//! `trax manifest enable`, `disable`, `trigger` and `delete`.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::Json;

use crate::output::{Consent, Options, confirmed, json, say};
use crate::session::Session;
use crate::similar::explained;
use trax_terminal::print;
use trax_terminal::{FAILED, Failure, duration};

const MANIFEST_LETTER: &str = include_str!("../query/manifest_letter.sql");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The manifests
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct DeleteArguments {
    /// The manifests
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct TriggerArguments {
    /// The manifest
    name: String,
    /// An input to use instead of its own, as JSON
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Not claimable before this time has passed, such as 5m or 1h30m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,
    #[command(flatten)]
    output: Options,
}

/// The change made to a manifest.
#[derive(Serialize)]
struct ManifestChange<'a> {
    name: &'a str,
    action: &'static str,
    /// The dead letter because of which an enabled schedule queues nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<DeadLetter>,
}

#[derive(Serialize)]
struct DeadLetter {
    id: i64,
    error: String,
}

impl DeadLetter {
    fn text(&self) -> String {
        let DeadLetter { id, error } = self;
        format!(
            ", but dead letter {id} stops its schedule: {error}; type: trax dead requeue {id}, or trax dead ack {id}"
        )
    }
}

pub(crate) async fn enable(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    switch(url, arguments, true).await
}

pub(crate) async fn disable(
    url: Option<String>,
    arguments: Arguments,
) -> Result<ExitCode, Failure> {
    switch(url, arguments, false).await
}

async fn switch(
    url: Option<String>,
    arguments: Arguments,
    enabled: bool,
) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let action = if enabled { "enabled" } else { "disabled" };
    let (mut changes, mut refused) = (Vec::new(), false);
    for name in &arguments.names {
        let client = session.client();
        let switched = if enabled {
            client.enable_manifest(name).await
        } else {
            client.disable_manifest(name).await
        };
        record(&session, switched, name, action, &mut changes, &mut refused).await;
    }
    if enabled {
        for change in &mut changes {
            change.stopped_by = letter(&session, change.name).await?;
        }
    }
    print_changes(&arguments.output, &changes, refused)
}

/// Returns the dead letter that stops the schedule of an enabled manifest, if the role may see it.
async fn letter(session: &Session, name: &str) -> Result<Option<DeadLetter>, Failure> {
    let Ok(rows) = session.find(MANIFEST_LETTER, &[(&name, Type::TEXT)]).await else {
        return Ok(None);
    };
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(DeadLetter {
        id: row.try_get("id")?,
        error: row.try_get("error")?,
    }))
}

pub(crate) async fn delete(
    url: Option<String>,
    arguments: DeleteArguments,
) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let question = format!(
        "Delete manifest {} and cancel its waiting jobs?",
        quoted(&arguments.names)
    );
    if !confirmed(arguments.consent, &question)? {
        print::log("trax", "nothing was deleted");
        return Ok(ExitCode::from(FAILED));
    }
    let (mut changes, mut refused) = (Vec::new(), false);
    for name in &arguments.names {
        let removed = session.client().unschedule(name).await;
        record(
            &session,
            removed,
            name,
            "deleted",
            &mut changes,
            &mut refused,
        )
        .await;
    }
    print_changes(&arguments.output, &changes, refused)
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    names.join(", ")
}

/// Records a result. An error with one manifest is reported, and the others continue.
async fn record<'a>(
    session: &Session,
    result: trax_client::Result<()>,
    name: &'a str,
    action: &'static str,
    changes: &mut Vec<ManifestChange<'a>>,
    refused: &mut bool,
) {
    match result {
        Ok(()) => changes.push(ManifestChange {
            name,
            action,
            stopped_by: None,
        }),
        Err(error) => {
            explained(session, name, error).await.report();
            *refused = true;
        }
    }
}

fn print_changes(
    output: &Options,
    changes: &[ManifestChange<'_>],
    refused: bool,
) -> Result<ExitCode, Failure> {
    output.changes(changes, |change| {
        let stopped = change.stopped_by.as_ref().map(DeadLetter::text);
        let stopped = stopped.unwrap_or_default();
        format!("manifest \"{}\" {}{stopped}", change.name, change.action)
    })?;
    Ok(if refused {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

pub(crate) async fn trigger(
    url: Option<String>,
    arguments: TriggerArguments,
) -> Result<ExitCode, Failure> {
    let input: Option<Json> = arguments
        .input
        .as_deref()
        .map(|text| {
            text.parse()
                .map_err(|error| Failure::usage(format!("--input is not JSON: {error}")))
        })
        .transpose()?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let sql = "select trax.trigger($1, $2, pg_catalog.make_interval(secs => $3))";
    let delay = arguments.delay.map(|delay| delay.as_secs_f64());
    let triggered: Result<i64, trax_client::Error> = session
        .value(
            sql,
            &[
                (&arguments.name, Type::TEXT),
                (&input, Type::JSONB),
                (&delay, Type::FLOAT8),
            ],
        )
        .await;
    let job_id = match triggered {
        Ok(job_id) => job_id,
        Err(error) => return Err(explained(&session, &arguments.name, error).await),
    };
    if arguments.output.json {
        json(&[serde_json::json!({"name": arguments.name, "job_id": job_id})])?;
    } else {
        // The id is the result that scripts read, with or without --quiet.
        say(&job_id.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
