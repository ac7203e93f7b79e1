//! The steps of a job, as `trax jobs show` lists them.

use serde::Serialize;
use tokio_postgres::Row;
use trax_client::Json;

use crate::output::{Cell, Column, Moment, Record, Tone};

/// A step, or the wait in which the job is suspended.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    step: String,
    kind: String,
    attempt: i32,
    recorded_at: Option<Moment>,
    timed_out: bool,
    output: Option<Json>,
    wait: Option<Json>,
}

impl Step {
    pub(super) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Step {
            step: row.try_get("step")?,
            kind: row.try_get("kind")?,
            attempt: row.try_get("attempt")?,
            recorded_at: row.try_get("recorded_at")?,
            timed_out: row.try_get("timed_out")?,
            output: row.try_get("output")?,
            wait: row.try_get("wait")?,
        })
    }
}

impl Record for Step {
    const COLUMNS: &'static [Column] = &[
        Column::text("step"),
        Column::whole("kind"),
        Column::number("att"),
        Column::whole("recorded"),
        Column::text("result"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let recorded = match self.recorded_at {
            Some(at) => Cell::plain(at.relative(now)),
            None => Cell::new("waits", Tone::Active),
        };
        let result = match (self.timed_out, self.recorded_at) {
            (true, _) => Some("timed out"),
            (false, None) => self.wait.as_ref().map(Json::text),
            (false, Some(_)) => self.output.as_ref().map(Json::text),
        };
        vec![
            Cell::plain(&self.step),
            Cell::plain(&self.kind),
            Cell::plain(self.attempt),
            recorded,
            Cell::maybe(result),
        ]
    }

    fn key(&self) -> String {
        self.step.clone()
    }
}
