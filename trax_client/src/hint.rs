//! The hints of the server, which are SQL, in Rust.

use crate::sql_hint::{Value, argument, rewritten};

/// Arguments that are an enum or a document here; they stay as they are.
const OTHERS: [&str; 6] = [
    "permanent",
    "dormant",
    "depends_mode",
    "state",
    "undo",
    "until",
];
/// Arguments that are parameters of functions here.
const PARAMETERS: [&str; 10] = [
    "allowed",
    "count",
    "delay",
    "name",
    "period",
    "prune",
    "source",
    "sql",
    "task",
    "time_limit",
];

/// Returns a hint with the arguments of a call as methods of builders or as parameters:
/// `priority => 0` is `.priority(0)`, `count => 1` is `count: 1`. Statements to type, and values
/// that are not understood, stay SQL.
pub(crate) fn in_rust(hint: &str) -> String {
    rewritten(hint, |text, may_begin| {
        let (name, value, after) = argument(text).filter(|_| may_begin)?;
        Some((passed(name, &value)?, after))
    })
}

/// Returns how an argument is passed.
fn passed(name: &str, value: &Value) -> Option<String> {
    Some(match (name, value) {
        ("on_duplicate", Value::Text(what)) => {
            let what = match &what[..] {
                "replace" => "Replace",
                "postpone" => "Postpone",
                _ => return None,
            };
            format!(".on_duplicate(OnDuplicate::{what})")
        }
        ("close_rate", _) => ".close_rate()".to_owned(),
        ("group_name", _) => format!(".group({})", written(value)?),
        _ if OTHERS.contains(&name) => return None,
        _ if PARAMETERS.contains(&name) => format!("{name}: {}", written(value)?),
        _ => format!(".{name}({})", written(value)?),
    })
}

/// Returns a value in Rust.
fn written(value: &Value) -> Option<String> {
    match value {
        Value::Text(json) if json.starts_with(['{', '[']) => None,
        Value::Text(text) => Some(duration(text).unwrap_or_else(|| format!("{text:?}"))),
        Value::Span(span) => duration(span),
        Value::Word(word) => {
            let is_plain = matches!(&word[..], "true" | "false") || word.parse::<f64>().is_ok();
            is_plain.then(|| word.clone())
        }
        Value::Now => Some("SystemTime::now()".to_owned()),
        Value::Later(span) => Some(format!("SystemTime::now() + {}", duration(span)?)),
        Value::List(values) => {
            let values: Option<Vec<String>> = values.iter().map(written).collect();
            Some(format!("[{}]", values?.join(", ")))
        }
        Value::Any => None,
    }
}

/// Returns an interval such as `30 s`.
fn duration(text: &str) -> Option<String> {
    let (count, unit) = text.split_once(' ')?;
    let seconds = match unit.trim_end_matches('s') {
        "" | "second" => 1,
        "min" | "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        _ => return None,
    };
    let count: u64 = count.parse().ok()?;
    Some(format!(
        "Duration::from_secs({})",
        count.checked_mul(seconds)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_methods_and_statements_stay() {
        for (sql, rust) in [
            (
                "Specify a number from 0 to 31: priority => 0",
                "Specify a number from 0 to 31: .priority(0)",
            ),
            (
                "Specify an interval, for example: timeout => interval '30 s'",
                "Specify an interval, for example: .timeout(Duration::from_secs(30))",
            ),
            (
                "For example: group_name => 'report.build'",
                "For example: .group(\"report.build\")",
            ),
            (
                "Name one: groups => array['mail.send', 'b']; or leave it out.",
                "Name one: .groups([\"mail.send\", \"b\"]); or leave it out.",
            ),
            (
                "Name the key: unique_key => 'report 7', unique_for => '1 hour'",
                "Name the key: .unique_key(\"report 7\"), .unique_for(Duration::from_secs(3600))",
            ),
            (
                "Specify a time: run_at => now() + interval '5 min'.",
                "Specify a time: .run_at(SystemTime::now() + Duration::from_secs(300)).",
            ),
            (
                "every => interval '5 min'. after => now()",
                ".every(Duration::from_secs(300)). .after(SystemTime::now())",
            ),
            (
                "Specify a number, for example: count => 1",
                "Specify a number, for example: count: 1",
            ),
            (
                "Add unique_key => 'a', on_duplicate => 'replace'; or close_rate => true.",
                "Add .unique_key(\"a\"), .on_duplicate(OnDuplicate::Replace); or .close_rate().",
            ),
        ] {
            assert_eq!(in_rust(sql), rust);
        }
        for sql in [
            "Type: select trax.schedule('m', 't', cron => '0 3 * * *')",
            "Name it: on_duplicate => 'sometimes'",
            "For example: undo => '{\"task\": \"a\"}'",
            "timeout => interval '1 fortnight', variance => ...",
            "As an admin of trax, type: select trax.grant_access('ROLE', 'worker')",
            "Write name => value.",
        ] {
            assert_eq!(in_rust(sql), sql);
        }
    }
}
