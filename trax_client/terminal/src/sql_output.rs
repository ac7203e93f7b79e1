//! What a SQL job returned, as psql would print it.

use console::measure_text_width;
use serde::Deserialize;
use serde_json::value::RawValue;
use trax_client::Json;

/// The output of a SQL job, as `trax.run.output` has it.
#[derive(Deserialize)]
struct SqlOutput {
    /// The command tag, for example `INSERT 0 1`.
    command: String,
    rows: u64,
    columns: Option<Vec<String>>,
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

/// Returns the statement of a SQL job; none for another job.
pub fn statement(task: &str, input: &Json) -> Option<String> {
    let input: SqlInput = input.read().ok().filter(|_| task == "sql")?;
    Some(input.command)
}

/// Returns the output of a SQL job as text; none for an output of another form.
pub fn as_psql(output: &Json) -> Option<String> {
    let output: SqlOutput = output.read().ok()?;
    let mut text: String = output
        .notices
        .iter()
        .map(|notice| format!("NOTICE:  {notice}\n"))
        .collect();
    if let Some(columns) = &output.columns {
        text.push_str(&table(columns, &output.result));
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

fn table(columns: &[String], rows: &[Vec<Box<RawValue>>]) -> String {
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|value| cell(value)).collect())
        .collect();
    let width = |place: usize| {
        let cells = texts.iter().filter_map(|row| row.get(place));
        let widths = cells
            .chain([&columns[place]])
            .map(|text| measure_text_width(text));
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let is_right = |place: usize| {
        let mut cells = rows.iter().map(|row| row.get(place));
        !rows.is_empty() && cells.all(|value| value.is_some_and(|value| is_numeric(value)))
    };
    let line = |cells: &[String], header: bool| {
        let padded = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(place, (text, width))| {
                let room = " ".repeat(width.saturating_sub(measure_text_width(text)));
                match !header && is_right(place) {
                    true => format!("{room}{text}"),
                    false => format!("{text}{room}"),
                }
            });
        let line = format!(" {}", padded.collect::<Vec<_>>().join(" | "));
        format!("{}\n", line.trim_end())
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let mut text = line(columns, true) + &rule.join("+") + "\n";
    for row in &texts {
        text.push_str(&line(row, false));
    }
    text
}

/// Returns whether a value is a number or null.
fn is_numeric(value: &RawValue) -> bool {
    let is_digit = |first: u8| first == b'-' || first.is_ascii_digit();
    value.get() == "null" || value.get().bytes().next().is_some_and(is_digit)
}

/// Returns a value as text; a number with the digits that it has in the JSON.
fn cell(value: &RawValue) -> String {
    match value.get() {
        "null" => String::new(),
        "true" => "t".to_owned(),
        "false" => "f".to_owned(),
        json => match serde_json::from_str::<String>(json) {
            Ok(text) => text.replace('\n', "⏎"),
            Err(_) => json.to_owned(),
        },
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
        let expected = "NOTICE:  mind\n id                     | name | done\n\
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
