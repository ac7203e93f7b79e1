//! `trax manifest apply` and `trax manifest diff`.

use std::collections::HashMap;
use std::process::ExitCode;

use tokio_postgres::types::Type;
use trax_client::Error;

use super::difference::ManifestDifference;
use super::document::{self, Document};
use crate::output::{Consent, Options, confirmed, json, say};
use crate::place;
use crate::session::{Argument, Session};
use trax_terminal::{FAILED, Failure, UNHEALTHY};

const OWNERS: &str = include_str!("../query/document_owners.sql");
const EXAMPLE: &str = r#"A file in TOML; JSON has the same names. Members are the arguments of
trax.schedule and trax.configure_group:

  [[groups]]
  name = "etl"
  max_active_jobs = 2

  [[manifests]]
  name = "extract"
  task = "etl.extract"
  cron = "0 4 * * *"
  timezone = "Europe/Berlin"
  group_name = "etl"
  input = { days = 1 }"#;

#[derive(clap::Args)]
pub(crate) struct Set {
    /// Files in TOML or JSON, or directories of them, read as one document; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Remove manifests that an earlier apply created and these files no longer have
    #[arg(long)]
    prune: bool,
    /// The owner of the objects that these files define, e.g. the repository; --prune removes only
    /// objects of this owner, and those of others are refused. Without it they are changed, keep
    /// their owner, and are shown with it
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Arguments {
    #[command(flatten)]
    set: Set,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct DiffArguments {
    #[command(flatten)]
    set: Set,
    /// Exit code 2 when there is a difference
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let document = document::read(&arguments.set.files)?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let (set, output) = (&arguments.set, arguments.output);
    let planned = actions(&session, &document, set, true).await?;
    let count = planned.iter().filter(|a| a.changes_something()).count();
    if count > 0 {
        if !output.json && !output.quiet {
            show(&planned, set)?;
        }
        let changes = if count == 1 { "change" } else { "changes" };
        let question = format!("Apply {count} {changes}?");
        if !confirmed(arguments.consent, &question)? {
            output.note("nothing was changed");
            return Ok(ExitCode::from(FAILED));
        }
    }
    let done = match count {
        0 => planned,
        _ => actions(&session, &document, set, false).await?,
    };
    if output.json {
        json(&done)?;
    } else if !output.quiet {
        say(&summary(&done))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn diff(
    url: Option<String>,
    arguments: DiffArguments,
) -> Result<ExitCode, Failure> {
    let document = document::read(&arguments.set.files)?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let planned = actions(&session, &document, &arguments.set, true).await?;
    let output = arguments.output;
    let differs = planned.iter().any(ManifestDifference::changes_something);
    if output.json {
        json(&planned)?;
    } else if !output.quiet {
        show(&planned, &arguments.set)?;
        if !differs {
            output.note("no difference");
        }
    }
    Ok(if differs && arguments.exit_code {
        ExitCode::from(UNHEALTHY)
    } else {
        ExitCode::SUCCESS
    })
}

async fn actions(
    session: &Session,
    document: &Document,
    set: &Set,
    dry_run: bool,
) -> Result<Vec<ManifestDifference>, Failure> {
    let sql = "select a.action, a.kind, a.name, a.detail \
               from trax.apply(document => $1, prune => $2, dry_run => $3, source => $4) a";
    let arguments: [Argument<'_>; 4] = [
        (&document.value, Type::JSONB),
        (&set.prune, Type::BOOL),
        (&dry_run, Type::BOOL),
        (&set.source, Type::TEXT),
    ];
    let rows = session.connection.query_typed(sql, &arguments).await;
    let rows = rows.map_err(|error| {
        let error = Error::from(error);
        let place = error
            .report()
            .and_then(|report| place::of(report, &document.places));
        let failure = Failure::from(error);
        match place {
            Some(place) => failure.at(&place),
            None => failure,
        }
    })?;
    let actions = rows.iter().map(ManifestDifference::read);
    let mut actions: Vec<ManifestDifference> = actions.collect::<Result<_, _>>()?;
    set_owners(session, &mut actions).await?;
    Ok(actions)
}

/// Sets the sources that own the objects.
async fn set_owners(session: &Session, actions: &mut [ManifestDifference]) -> Result<(), Failure> {
    let names: Vec<&str> = actions.iter().map(|action| action.name.as_str()).collect();
    let rows = session.find(OWNERS, &[(&names, Type::TEXT_ARRAY)]).await?;
    let mut owners = HashMap::new();
    for row in &rows {
        let (kind, name): (String, String) = (row.try_get("kind")?, row.try_get("name")?);
        owners.insert((kind, name), row.try_get("source")?);
    }
    for action in actions {
        let key = (action.kind.clone(), action.name.clone());
        action.source = owners.remove(&key);
    }
    Ok(())
}

/// Prints the changes.
fn show(actions: &[ManifestDifference], set: &Set) -> Result<(), Failure> {
    let texts: Vec<String> = actions
        .iter()
        .filter(|action| action.changes_something())
        .map(|action| action.text(set.source.as_deref()))
        .collect();
    if texts.is_empty() {
        return Ok(());
    }
    say(&texts.join("\n"))
}

/// Returns "1 created, 2 changed, 3 unchanged".
fn summary(actions: &[ManifestDifference]) -> String {
    let parts: Vec<String> = ["created", "changed", "removed", "unchanged"]
        .iter()
        .filter_map(|kind| {
            let count = actions.iter().filter(|a| a.action == **kind).count();
            (count > 0).then(|| format!("{count} {kind}"))
        })
        .collect();
    if parts.is_empty() {
        return "nothing to do: the document is empty".to_owned();
    }
    parts.join(", ")
}
