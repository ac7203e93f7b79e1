//! The reasons why a job waits, or why a manifest does or does not run now.

use serde::Serialize;
use tokio_postgres::Row;

use crate::output::{Cell, Column, Facts, Moment, Options, Record, Tone, say};
use trax_terminal::{Failure, as_commands};

#[derive(Debug, Serialize)]
struct Reason {
    reason: String,
    detail: Option<String>,
    since: Option<Moment>,
    action: Option<String>,
}

/// Prints rows of `trax.explain_job` or `trax.explain_manifest`.
pub(crate) fn show(rows: &[Row], now: Moment, output: Options) -> Result<(), Failure> {
    let reasons: Vec<Reason> = rows.iter().map(Reason::read).collect::<Result<_, _>>()?;
    if output.json || output.quiet {
        return output.list(&reasons, now, "");
    }
    let texts: Vec<String> = reasons.iter().map(|reason| reason.text(now)).collect();
    say(&texts.join("\n\n"))
}

impl Reason {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Reason {
            reason: row.try_get("reason")?,
            detail: row.try_get("detail")?,
            since: row.try_get("since")?,
            action: row.try_get("action")?,
        })
    }

    /// Returns several short lines, as whole sentences do not fit a column.
    fn text(&self, now: Moment) -> String {
        let mut facts = Facts::default();
        facts.toned("reason", &self.reason, Tone::Strong);
        facts.maybe("detail", self.detail.as_deref());
        facts.maybe("since", self.since.map(|since| since.full(now)));
        facts.maybe("action", self.action.as_deref().map(as_commands));
        facts.text()
    }
}

impl Record for Reason {
    const COLUMNS: &'static [Column] = &[Column::whole("reason"), Column::text("detail")];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        vec![
            Cell::plain(&self.reason),
            Cell::maybe(self.detail.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.reason.clone()
    }
}
