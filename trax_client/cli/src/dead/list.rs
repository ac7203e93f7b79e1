//! `trax dead list`.

use std::cmp::Reverse;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Filters;
use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use trax_terminal::Failure;

const DEAD_LETTER_LIST: &str = include_str!("../query/dead_letter_list.sql");
const STATUSES: [&str; 4] = ["awaiting_intervention", "requeued", "acknowledged", "any"];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    filters: Filters,
    /// Whether they have been resolved
    #[arg(long, value_name = "STATUS", default_value = STATUSES[0], value_parser = PossibleValuesParser::new(STATUSES))]
    status: String,
    /// The most rows to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    #[command(flatten)]
    output: Options,
}

/// A dead letter.
#[derive(Debug, Serialize)]
pub(super) struct DeadLetter {
    pub(super) id: i64,
    pub(super) job_id: i64,
    pub(super) status: String,
    pub(super) task: String,
    pub(super) group_name: String,
    pub(super) manifest: Option<String>,
    pub(super) reason: String,
    pub(super) attempts: i32,
    pub(super) last_error: Option<String>,
    pub(super) created_at: Moment,
    pub(super) resolved_at: Option<Moment>,
    pub(super) resolution_note: Option<String>,
    pub(super) requeued_job_id: Option<i64>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let since = arguments.filters.read(&session).await?;
    let status = Some(&arguments.status).filter(|status| *status != "any");
    let at_most = arguments.limit.saturating_add(1);
    let mut filters = arguments.filters.arguments(&since);
    filters.extend([(&status as _, Type::TEXT), (&at_most as _, Type::INT8)]);
    let mut letters = session
        .list::<DeadLetter>(DEAD_LETTER_LIST, &filters)
        .await?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let more = letters.len() > limit;
    letters.truncate(limit);
    let output = arguments.output;
    output.list(&letters, session.now, "no dead letter matches")?;
    if letters.is_empty() {
        arguments.filters.note(&session, &output).await;
    }
    if more {
        output.note(&format!("there are more rows; --limit is {limit}"));
    }
    Ok(session.outcome())
}

impl DeadLetter {
    /// Returns "waits", "requeued as 12", "acknowledged".
    pub(super) fn status_cell(&self) -> Cell {
        match (self.status.as_str(), self.requeued_job_id) {
            ("awaiting_intervention", _) => Cell::new("waits", Tone::Bad),
            ("requeued", Some(job)) => Cell::new(format!("requeued as {job}"), Tone::Good),
            (status, _) => Cell::dim(status),
        }
    }
}

impl Listed for DeadLetter {
    type Order = Reverse<Moment>;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(DeadLetter {
            id: row.try_get("id")?,
            job_id: row.try_get("job_id")?,
            status: row.try_get("status")?,
            task: row.try_get("task")?,
            group_name: row.try_get("group_name")?,
            manifest: row.try_get("manifest")?,
            reason: row.try_get("reason")?,
            attempts: row.try_get("attempts")?,
            last_error: row.try_get("last_error")?,
            created_at: row.try_get("created_at")?,
            resolved_at: row.try_get("resolved_at")?,
            resolution_note: row.try_get("resolution_note")?,
            requeued_job_id: row.try_get("requeued_job_id")?,
        })
    }

    fn order(&self) -> Self::Order {
        Reverse(self.created_at)
    }
}

impl Record for DeadLetter {
    const COLUMNS: &'static [Column] = &[
        Column::number("id"),
        Column::number("job"),
        Column::whole("status"),
        Column::text("task"),
        Column::text("group"),
        Column::text("manifest"),
        Column::whole("died"),
        Column::number("att"),
        Column::text("reason").verbose(),
        Column::text("error"),
        Column::text("note").verbose(),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        vec![
            Cell::plain(self.id),
            Cell::plain(self.job_id),
            self.status_cell(),
            Cell::plain(&self.task),
            Cell::maybe(Some(&self.group_name).filter(|name| *name != "default")),
            Cell::maybe(self.manifest.as_deref()),
            Cell::plain(self.created_at.relative(now)),
            Cell::plain(self.attempts),
            Cell::plain(&self.reason),
            Cell::maybe(self.last_error.as_deref()),
            Cell::maybe(self.resolution_note.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.id.to_string()
    }
}
