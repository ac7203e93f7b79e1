//! Prints the output of a SQL job as psql would.

use console::measure_text_width;
use serde::Deserialize;
use serde_json::value::RawValue;
use trax_client::Json;

/// The output of a SQL job, as stored in `trax.run.output`.
#[derive(Deserialize)]
struct SqlOutput {
    /// The command tag, for example `INSERT 0 1`.
    command: String,
    rows: u64,
    columns: Option<Vec<String>>,
    /// The types of the columns, as SQL spells them. Missing in older outputs.
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    result: Vec<Vec<Box<RawValue>>>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    notices: Vec<String>,
    plan_ms: f64,
    run_ms: f64,
    transaction: bool,
}

/// The input of a SQL job.
#[derive(Deserialize)]
struct SqlInput {
    command: String,
}

/// Returns the statement of a SQL job; `None` for other jobs.
pub fn statement(task: &str, input: &Json) -> Option<String> {
    let input: SqlInput = input.read().ok().filter(|_| task == "sql")?;
    Some(input.command)
}

/// Returns the output of a SQL job as text; `None` if it has another form.
pub fn as_psql(output: &Json) -> Option<String> {
    let output: SqlOutput = output.read().ok()?;
    let mut text: String = output
        .notices
        .iter()
        .map(|notice| format!("NOTICE:  {notice}\n"))
        .collect();
    if let Some(columns) = &output.columns {
        text.push_str(&table(columns, &output.types, &output.result));
        let rows = if output.rows == 1 { "row" } else { "rows" };
        text.push_str(&match output.truncated {
            true => format!(
                "({} {rows}, cut after {})\n",
                output.rows,
                output.result.len()
            ),
            false => format!("({} {rows})\n", output.rows),
        });
    }
    if output.columns.is_none() || !output.command.starts_with("SELECT") {
        text.push_str(&format!("{}\n", output.command));
    }
    let outside = if output.transaction {
        ""
    } else {
        ", outside a transaction"
    };
    text.push_str(&format!(
        "Time: {:.3} ms, planned in {:.3} ms{outside}",
        output.run_ms, output.plan_ms
    ));
    Some(text)
}

/// The types that psql right-aligns.
const NUMERIC: [&str; 11] = [
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "numeric",
    "money",
    "oid",
    "xid",
    "xid8",
    "cid",
];

/// The alignment of a text in its column.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Middle,
    Right,
}

/// Returns rows as psql aligns them, without blanks at the ends of lines.
fn table(columns: &[String], types: &[String], rows: &[Vec<Box<RawValue>>]) -> String {
    let column = |place: usize| rows.iter().filter_map(move |row| row.get(place));
    let sides: Vec<Side> = (0..columns.len())
        .map(|place| match types.get(place) {
            Some(kind) if NUMERIC.contains(&kind.as_str()) => Side::Right,
            None if !rows.is_empty() && column(place).all(|value| is_numeric(value)) => Side::Right,
            _ => Side::Left,
        })
        .collect();
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().enumerate();
            let cells = cells.map(|(place, value)| cell(value, types.get(place)));
            cells.collect()
        })
        .collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|place| {
            let cells = texts.iter().filter_map(|row| row.get(place));
            let lines = cells
                .chain([&columns[place]])
                .flat_map(|text| text.split('\n'));
            lines.map(measure_text_width).max().unwrap_or(0)
        })
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let mut text = String::new();
    push_row(
        &mut text,
        columns,
        &widths,
        &vec![Side::Middle; columns.len()],
    );
    text.push_str(&rule.join("+"));
    text.push('\n');
    for row in &texts {
        push_row(&mut text, row, &widths, &sides);
    }
    text
}

/// Adds a row with as many lines as its tallest cell. A `+` marks a cell that continues.
fn push_row(text: &mut String, cells: &[String], widths: &[usize], sides: &[Side]) {
    let cells: Vec<Vec<&str>> = cells
        .iter()
        .map(|cell| cell.split('\n').collect())
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let parts = cells
            .iter()
            .zip(widths)
            .zip(sides)
            .map(|((cell, width), side)| {
                let part = cell.get(line).copied().unwrap_or_default();
                let room = width.saturating_sub(measure_text_width(part));
                let before = match side {
                    Side::Left => 0,
                    Side::Middle => room / 2,
                    Side::Right => room,
                };
                let goes_on = if line + 1 < cell.len() { '+' } else { ' ' };
                let after = " ".repeat(room - before);
                format!(" {}{part}{after}{goes_on}", " ".repeat(before))
            });
        let parts: Vec<String> = parts.collect();
        text.push_str(parts.join("|").trim_end());
        text.push('\n');
    }
}

/// Returns whether a value is a number or null.
fn is_numeric(value: &RawValue) -> bool {
    let is_digit = |first: u8| first == b'-' || first.is_ascii_digit();
    value.get() == "null" || value.get().bytes().next().is_some_and(is_digit)
}

/// Returns a value as text. A number keeps the digits of the JSON.
fn cell(value: &RawValue, kind: Option<&String>) -> String {
    match value.get() {
        "null" => String::new(),
        json if kind.is_some_and(|kind| kind == "jsonb") => json.to_owned(),
        "true" => "t".to_owned(),
        "false" => "f".to_owned(),
        json => serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(output: &str) -> Option<String> {
        as_psql(&output.parse().expect("it is JSON"))
    }

    #[test]
    fn rows_are_a_table_and_numbers_keep_their_digits() {
        let output = r#"{"command": "SELECT 2", "rows": 2, "columns": ["id", "name", "done"],
            "result": [[1, "ada", true], [12345678901234567890.5, null, false]], "truncated": false,
            "notices": ["mind"], "plan_ms": 0.25, "run_ms": 1.5, "transaction": true}"#;
        let expected = "NOTICE:  mind\n           id           | name | done\n\
            ------------------------+------+------\n                      1 | ada  | t\n \
            12345678901234567890.5 |      | f\n(2 rows)\nTime: 1.500 ms, planned in 0.250 ms";
        assert_eq!(printed(output).as_deref(), Some(expected));
    }

    #[test]
    fn what_returns_no_rows_is_its_tag() {
        let output = r#"{"command": "VACUUM", "rows": 0, "notices": [], "plan_ms": 0, "run_ms": 2, "transaction": false}"#;
        let expected = "VACUUM\nTime: 2.000 ms, planned in 0.000 ms, outside a transaction";
        assert_eq!(printed(output).as_deref(), Some(expected));
        assert_eq!(printed(r#"{"sent": 3}"#), None, "the output of a worker");
    }

    #[test]
    fn only_the_task_of_statements_has_one() {
        let input: Json = r#"{"command": "vacuum"}"#.parse().expect("it is JSON");
        assert_eq!(statement("sql", &input).as_deref(), Some("vacuum"));
        assert_eq!(statement("shell", &input), None);
    }
}
