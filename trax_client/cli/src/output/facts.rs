//! An object in detail: its facts, one per line, followed by its texts.

use console::measure_text_width;
use trax_client::Json;

use super::table::{Cell, table};
use super::{Moment, Record, Tone, one_line, paint, plain, width};
use trax_terminal::print::folded_at;

/// The indentation of texts below their heading.
const INDENT: usize = 2;

/// The details that `show` prints about one object.
#[derive(Default)]
pub(crate) struct Facts {
    facts: Vec<(&'static str, String, Tone)>,
    blocks: Vec<(String, String)>,
}

impl Facts {
    pub(crate) fn add(&mut self, label: &'static str, text: impl std::fmt::Display) {
        self.toned(label, text, Tone::Plain);
    }

    pub(crate) fn toned(&mut self, label: &'static str, text: impl std::fmt::Display, tone: Tone) {
        self.facts.push((label, one_line(&text.to_string()), tone));
    }

    /// Adds a fact if there is one.
    pub(crate) fn maybe<T: std::fmt::Display>(&mut self, label: &'static str, text: Option<T>) {
        if let Some(text) = text {
            self.add(label, text);
        }
    }

    /// Adds a multi-line text under its own heading. Long lines are folded.
    pub(crate) fn block(&mut self, heading: impl Into<String>, text: &str) {
        let room = width().map(|width| width.saturating_sub(INDENT));
        let text = folded_at(&plain(text), 0, room);
        self.blocks.push((one_line(&heading.into()), text));
    }

    /// Adds a text whose lines are kept.
    pub(crate) fn verbatim(&mut self, heading: &str, text: &str) {
        self.blocks.push((heading.to_owned(), plain(text)));
    }

    /// Adds a table under its own heading, unless it has no rows.
    pub(crate) fn rows<R: Record>(
        &mut self,
        heading: impl Into<String>,
        records: &[R],
        now: Moment,
    ) {
        if !records.is_empty() {
            let rows: Vec<Vec<Cell>> = records.iter().map(|record| record.cells(now)).collect();
            let room = width().map(|width| width.saturating_sub(INDENT));
            let text = table(R::COLUMNS, &rows, true, room);
            self.blocks.push((one_line(&heading.into()), text));
        }
    }

    /// Adds indented JSON, unless it is null.
    pub(crate) fn json(&mut self, heading: &str, json: &Json) {
        if !json.is_null() {
            // JSON nested too deeply to be indented stays on one line.
            let text = match json.read::<serde_json::Value>() {
                Ok(value) => format!("{value:#}"),
                Err(_) => json.to_string(),
            };
            let text = plain(&text);
            self.blocks.push((heading.to_owned(), text));
        }
    }

    /// Adds JSON that a program may have printed: a string is the program's text as it was.
    pub(crate) fn printed(&mut self, heading: &str, json: &Json) {
        match json.read::<String>() {
            Ok(text) => self.verbatim(heading, &text),
            Err(_) => self.json(heading, json),
        }
    }

    pub(crate) fn text(&self) -> String {
        let widest = self.facts.iter().map(|(label, _, _)| label.len()).max();
        let indent = widest.unwrap_or(0) + 2;
        let mut lines: Vec<String> = Vec::new();
        for (label, text, tone) in &self.facts {
            // Continuation lines align with the beginning of the value.
            let folded = folded_at(&format!("{}{text}", " ".repeat(indent)), indent, width());
            let value = paint(folded.trim_start(), *tone);
            let blanks = " ".repeat(indent - measure_text_width(label));
            lines.push(format!("{}{blanks}{value}", paint(label, Tone::Dim)));
        }
        for (heading, text) in &self.blocks {
            lines.extend([String::new(), paint(heading, Tone::Strong)]);
            lines.extend(
                text.lines()
                    .map(|line| format!("{}{line}", " ".repeat(INDENT))),
            );
        }
        lines.join("\n")
    }
}
