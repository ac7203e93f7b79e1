//! A run to come, as the server previews it: of a manifest or of a cron expression.

use serde::Serialize;
use tokio_postgres::Row;

use crate::output::{Cell, Column, Moment, Record, Tone};

/// When, by both clocks, and what is unusual about it.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    run_at: Moment,
    local_time: String,
    note: Option<String>,
}

impl Run {
    pub(crate) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Run {
            run_at: row.try_get("run_at")?,
            local_time: row.try_get("local_time")?,
            note: row.try_get("note")?,
        })
    }
}

impl Record for Run {
    const COLUMNS: &'static [Column] = &[
        Column::whole("in its zone"),
        Column::whole("here"),
        Column::whole("when"),
        Column::text("note"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        vec![
            Cell::new(&self.local_time, Tone::Strong),
            Cell::plain(self.run_at.local()),
            Cell::plain(self.run_at.relative(now)),
            Cell::maybe(self.note.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.run_at.rfc_3339()
    }
}
