//! `trax jobs why`: the reasons why a job waits.

use std::process::ExitCode;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::unknown;
use crate::output::Options;
use crate::reason::show;
use crate::session::Session;
use trax_terminal::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The job
    #[arg(value_name = "ID")]
    id: i64,
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let sql = "select e.reason, e.detail, e.since, e.action from trax.explain_job($1) e";
    let id = arguments.id;
    let rows = match session
        .connection
        .query_typed(sql, &[(&id, Type::INT8)])
        .await
    {
        Ok(rows) => rows,
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => {
            return Err(unknown(&session, id));
        }
        Err(error) => return Err(error.into()),
    };
    show(&rows, session.now, arguments.output)?;
    Ok(ExitCode::SUCCESS)
}
