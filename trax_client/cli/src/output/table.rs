//! Tables: a header and rows with aligned columns, limited to the width of the terminal.

use console::measure_text_width;

use super::{Tone, paint, plain};

/// The number of blanks between columns.
const GAP: usize = 2;
/// A column is not made narrower than this, unless its texts are.
const NARROWEST: usize = 8;

/// A shorter part of a cell at the end of a line is not shown.
const WORTH_SHOWING: usize = 4;

/// A text and its tone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: impl std::fmt::Display, tone: Tone) -> Self {
        Cell {
            text: one_line(&text.to_string()),
            tone,
        }
    }

    pub(crate) fn plain(text: impl std::fmt::Display) -> Self {
        Cell::new(text, Tone::Plain)
    }

    pub(crate) fn dim(text: impl std::fmt::Display) -> Self {
        Cell::new(text, Tone::Dim)
    }

    /// Returns a cell that may be empty. A column with only empty cells is left out.
    pub(crate) fn maybe<T: std::fmt::Display>(text: Option<T>) -> Self {
        Cell::plain(text.map(|text| text.to_string()).unwrap_or_default())
    }
}

/// Joins the lines of a text, so that a row stays on one line.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    plain(&lines.join(" "))
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    header: &'static str,
    kind: Kind,
    only_verbose: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Cut if the table is too wide.
    Text,
    /// Never cut: ids, states, times.
    Whole,
    /// Never cut, and right-aligned.
    Number,
}

impl Column {
    const fn of(header: &'static str, kind: Kind) -> Self {
        Column {
            header,
            kind,
            only_verbose: false,
        }
    }

    /// Returns a column for texts of any length.
    pub(crate) const fn text(header: &'static str) -> Self {
        Column::of(header, Kind::Text)
    }

    /// Returns a column that is never cut: short words that would be useless when cut.
    pub(crate) const fn whole(header: &'static str) -> Self {
        Column::of(header, Kind::Whole)
    }

    /// Returns a column for numbers.
    pub(crate) const fn number(header: &'static str) -> Self {
        Column::of(header, Kind::Number)
    }

    /// Shows the column with `--verbose` only.
    pub(crate) const fn verbose(mut self) -> Self {
        self.only_verbose = true;
        self
    }
}

/// Returns rows under a header. Columns that are empty in every row are left out. Texts are cut
/// with … until every line fits `limit`, the widest column first.
pub(crate) fn table(
    columns: &[Column],
    rows: &[Vec<Cell>],
    verbose: bool,
    limit: Option<usize>,
) -> String {
    let shown: Vec<usize> = (0..columns.len())
        .filter(|&i| verbose || !columns[i].only_verbose)
        .filter(|&i| rows.is_empty() || rows.iter().any(|row| !row[i].text.is_empty()))
        .collect();
    let mut widths: Vec<usize> = shown
        .iter()
        .map(|&i| {
            let widest = rows
                .iter()
                .map(|row| measure_text_width(&row[i].text))
                .max();
            widest.unwrap_or(0).max(columns[i].header.len())
        })
        .collect();
    if let Some(limit) = limit {
        let kinds: Vec<Kind> = shown.iter().map(|&i| columns[i].kind).collect();
        narrow(&mut widths, &kinds, limit);
    }
    let header: Vec<Cell> = columns
        .iter()
        .map(|column| Cell::new(column.header.to_uppercase(), Tone::Dim))
        .collect();
    let lines: Vec<String> = std::iter::once(&header)
        .chain(rows)
        .map(|row| {
            let cells = shown.iter().zip(&widths);
            let parts = cells.map(|(&i, &width)| (&row[i], width, columns[i].kind));
            line(parts.collect(), limit)
        })
        .collect();
    lines.join("\n")
}

/// Narrows the widest column that may be cut until all fit, or none can be narrowed further.
fn narrow(widths: &mut [usize], kinds: &[Kind], limit: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
    while excess > 0 {
        let widest = (0..widths.len())
            .filter(|&i| kinds[i] == Kind::Text && widths[i] > NARROWEST)
            .max_by_key(|&i| widths[i]);
        let Some(widest) = widest else { return };
        widths[widest] -= 1;
        excess -= 1;
    }
}

/// Returns one line, cut at the limit.
fn line(cells: Vec<(&Cell, usize, Kind)>, limit: Option<usize>) -> String {
    let mut text = String::new();
    let mut at = 0;
    let last = cells.len().saturating_sub(1);
    for (i, (cell, width, kind)) in cells.into_iter().enumerate() {
        let start = if i == 0 { 0 } else { at + GAP };
        let room = limit.map_or(width, |limit| limit.saturating_sub(start).min(width));
        if room < width.min(WORTH_SHOWING) {
            break;
        }
        let cut = cut(&cell.text, room);
        let blanks = " ".repeat(room - measure_text_width(&cut).min(room));
        text.push_str(&" ".repeat(start - at));
        let painted = paint(&cut, cell.tone);
        match kind {
            Kind::Number => text.extend([blanks, painted]),
            Kind::Text | Kind::Whole if i == last => text.push_str(&painted),
            Kind::Text | Kind::Whole => text.extend([painted, blanks]),
        }
        at = start + room;
    }
    text.trim_end().to_owned()
}

/// Returns the text if it fits, otherwise its beginning followed by ….
pub(crate) fn cut(text: &str, room: usize) -> String {
    if measure_text_width(text) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if measure_text_width(&kept) + 1 > room {
            kept.pop();
            break;
        }
    }
    kept.truncate(kept.trim_end().len());
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::number("id"),
        Column::whole("state"),
        Column::text("task"),
        Column::text("worker").verbose(),
    ];

    fn row(id: i32, state: &str, task: &str, worker: &str) -> Vec<Cell> {
        vec![
            Cell::plain(id),
            Cell::plain(state),
            Cell::plain(task),
            Cell::plain(worker),
        ]
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_at_the_right() {
        let rows = [
            row(7, "queued", "mail.send", "w"),
            row(123, "failed", "x", "w"),
        ];
        assert_eq!(
            table(&COLUMNS, &rows, false, None),
            " ID  STATE   TASK\n  7  queued  mail.send\n123  failed  x"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_limit_and_the_widest_text_gives_first() {
        let rows = [
            row(1, "queued", &"long ".repeat(40), "one"),
            row(
                2,
                "queued",
                "日本語の長い名前がここにあります、本当に長い名前です",
                "two",
            ),
        ];
        for limit in [10, 20, 40, 80, 160] {
            let text = table(&COLUMNS, &rows, true, Some(limit));
            for line in text.lines() {
                assert!(measure_text_width(line) <= limit, "{limit}: {line}");
            }
        }
        let text = table(&COLUMNS, &rows, true, Some(80));
        assert!(text.contains('…') && text.contains("one"), "{text}");
    }

    #[test]
    fn an_empty_column_is_left_out_and_an_error_of_many_lines_is_one_row() {
        let rows = [row(1, "", "first\n  second\n", "")];
        assert_eq!(
            table(&COLUMNS, &rows, true, None),
            "ID  TASK\n 1  first second"
        );
    }
}
