//! `trax manifest preview` and `trax manifest why`: the next runs, and the reasons for not running
//! now.

use std::process::ExitCode;
use std::time::SystemTime;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::output::{Options, say};
use crate::reason::show;
use crate::session::{Argument, Session};
use crate::similar::explained;
use crate::upcoming::{self, UpcomingRun};
use trax_terminal::{Failure, quote};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The manifest
    name: String,
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..=1000))]
    count: i32,
    /// Only runs after this time; default: now
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct WhyArguments {
    /// The manifest
    name: String,
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn preview(
    url: Option<String>,
    arguments: Arguments,
) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let after = match &arguments.after {
        Some(text) => Some(session.time(text).await?),
        None => None,
    };
    let runs = runs(&session, &arguments.name, after, arguments.count).await?;
    let nothing = format!(
        "manifest \"{}\" has no future run; to see why: trax manifest why {}",
        arguments.name,
        quote::word(&arguments.name)
    );
    let output = arguments.output;
    if runs.is_empty() || output.json || output.quiet {
        output.list(&runs, session.now, &nothing)?;
    } else {
        say(&upcoming::text(&runs, session.now))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the next runs of a manifest.
pub(super) async fn runs(
    session: &Session,
    name: &str,
    after: Option<SystemTime>,
    count: i32,
) -> Result<Vec<UpcomingRun>, Failure> {
    let sql = "select p.run_at, p.local_time, p.note \
               from trax.preview($1, coalesce($2, pg_catalog.now()), $3) p";
    let arguments: [Argument<'_>; 3] = [
        (&name, Type::TEXT),
        (&after, Type::TIMESTAMPTZ),
        (&count, Type::INT4),
    ];
    let rows = asked(session, name, sql, &arguments).await?;
    Ok(rows
        .iter()
        .map(UpcomingRun::read)
        .collect::<Result<_, _>>()?)
}

/// Returns the rows of a statement about a manifest.
async fn asked(
    session: &Session,
    name: &str,
    sql: &str,
    arguments: &[Argument<'_>],
) -> Result<Vec<Row>, Failure> {
    match session.connection.query_typed(sql, arguments).await {
        Ok(rows) => Ok(rows),
        Err(error) => Err(explained(session, name, error.into()).await),
    }
}

pub(crate) async fn why(url: Option<String>, arguments: WhyArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let sql = "select e.reason, e.detail, e.since, e.action from trax.explain_manifest($1) e";
    let name = &arguments.name;
    let rows = asked(&session, name, sql, &[(name, Type::TEXT)]).await?;
    show(&rows, session.now, arguments.output)?;
    Ok(ExitCode::SUCCESS)
}
