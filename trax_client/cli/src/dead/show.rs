//! `trax dead show`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::Json;

use super::last_of;
use super::list::DeadLetter;
use crate::output::{Facts, Listed, Moment, Options, json, say};
use crate::session::Session;
use trax_terminal::Failure;

const DEAD_LETTER_SHOW: &str = include_str!("../query/dead_letter_show.sql");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The dead letter; may be repeated
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    #[command(flatten)]
    output: Options,
}

/// A dead letter with all its columns.
#[derive(Debug, Serialize)]
struct DeadLetterDetail {
    #[serde(flatten)]
    letter: DeadLetter,
    priority: i16,
    max_retries: Option<i32>,
    unique_key: Option<String>,
    concurrency_key: Option<String>,
    version: Option<String>,
    rate: Option<String>,
    input: Json,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let mut letters = Vec::with_capacity(arguments.ids.len());
    for id in &arguments.ids {
        let rows = session.find(DEAD_LETTER_SHOW, &[(id, Type::INT8)]).await?;
        let row = last_of(&rows)?.ok_or_else(|| {
            let failure = Failure::new(format!("dead letter {id} does not exist"))
                .hint("resolved ones are kept for trax.dead_letter_retention; see: trax dead list");
            session.absent(failure)
        })?;
        letters.push(DeadLetterDetail {
            letter: DeadLetter::read(row)?,
            priority: row.try_get("priority")?,
            max_retries: row.try_get("max_retries")?,
            unique_key: row.try_get("unique_key")?,
            concurrency_key: row.try_get("concurrency_key")?,
            version: row.try_get("version")?,
            rate: row.try_get("rate")?,
            input: row.try_get("input")?,
        });
    }
    if arguments.output.json {
        json(&letters)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.output.quiet {
        let statuses = letters.iter().map(|whole| whole.letter.status.clone());
        arguments.output.keys(statuses)?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts: Vec<String> = letters
        .iter()
        .map(|whole| whole.text(session.now))
        .collect();
    say(&texts.join("\n\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl DeadLetterDetail {
    fn text(&self, now: Moment) -> String {
        let letter = &self.letter;
        let mut facts = Facts::default();
        facts.add("dead letter", letter.id);
        facts.add("status", &letter.status);
        facts.add("job", letter.job_id);
        facts.add("task", &letter.task);
        facts.add("group", &letter.group_name);
        facts.maybe("manifest", letter.manifest.as_deref());
        facts.add("priority", self.priority);
        facts.add("reason", &letter.reason);
        facts.add("attempts", letter.attempts);
        facts.maybe("unique key", self.unique_key.as_deref());
        facts.maybe("concurrency key", self.concurrency_key.as_deref());
        facts.maybe("version", self.version.as_deref());
        facts.maybe("rate", self.rate.as_deref());
        facts.add("died", letter.created_at.full(now));
        facts.maybe("resolved", letter.resolved_at.map(|at| at.full(now)));
        facts.maybe("note", letter.resolution_note.as_deref());
        facts.maybe("requeued as job", letter.requeued_job_id);
        facts.json("input", &self.input);
        if let Some(error) = &letter.last_error {
            facts.block("last error", error);
        }
        facts.text()
    }
}
