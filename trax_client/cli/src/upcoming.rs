//! An upcoming run of a manifest or cron expression, as previewed by the server.

use serde::Serialize;
use tokio_postgres::Row;

use crate::output::{Cell, Column, Moment, Record, Tone, plain, table, width};

/// The width required for a column of notes, which are sentences. In a narrower terminal they
/// follow the table.
const ROOM_FOR_NOTES: usize = 130;

/// The time by both clocks, and a note on anything unusual.
#[derive(Debug, Serialize)]
pub(crate) struct UpcomingRun {
    run_at: Moment,
    local_time: String,
    note: Option<String>,
}

impl UpcomingRun {
    pub(crate) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(UpcomingRun {
            run_at: row.try_get("run_at")?,
            local_time: row.try_get("local_time")?,
            note: row.try_get("note")?,
        })
    }
}

/// Returns the runs as a table, with all notes in full.
pub(crate) fn text(runs: &[UpcomingRun], now: Moment) -> String {
    let width = width();
    let mut rows: Vec<Vec<Cell>> = runs.iter().map(|run| run.cells(now)).collect();
    if width.is_none_or(|width| width >= ROOM_FOR_NOTES) {
        return table(UpcomingRun::COLUMNS, &rows, false, width);
    }
    let mut notes: Vec<&str> = Vec::new();
    for (run, row) in runs.iter().zip(&mut rows) {
        let Some(note) = run.note.as_deref() else {
            continue;
        };
        let known = notes.iter().position(|known| *known == note);
        let number = known.unwrap_or_else(|| {
            notes.push(note);
            notes.len() - 1
        });
        if let Some(cell) = row.last_mut() {
            *cell = Cell::plain(format!("({})", number + 1));
        }
    }
    let mut text = table(UpcomingRun::COLUMNS, &rows, false, width);
    for (number, note) in notes.iter().enumerate() {
        let gap = if number == 0 { "\n\n" } else { "\n" };
        let note = format!("({}) {}", number + 1, plain(note));
        text.push_str(&format!(
            "{gap}{}",
            trax_terminal::print::folded_at(&note, 4, width)
        ));
    }
    text
}

impl Record for UpcomingRun {
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
