//! The hints of the server, which are SQL, in Rust.

/// Arguments that are an enum, a document or a method without a value here; they stay as they are.
const OTHERS: [&str; 11] = [
    "on_duplicate",
    "permanent",
    "close_rate",
    "dormant",
    "depends_mode",
    "state",
    "undo",
    "task",
    "sql",
    "name",
    "until",
];

/// Returns a hint with the arguments of a call as methods of builders: `priority => 0` is
/// `.priority(0)`. Statements to type, and values that are not understood, stay SQL.
pub(crate) fn in_rust(hint: &str) -> String {
    let mut written = String::with_capacity(hint.len());
    let mut rest = hint;
    while let Some(at) = rest.find(" => ") {
        let (before, after) = (&rest[..at], &rest[at + 4..]);
        let begins = before
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(0, |end| end + 1);
        let (text, name) = before.split_at(begins);
        written.push_str(text);
        let is_in_call = written.matches('(').count() > written.matches(')').count();
        match (is_in_call, method(name), value(after)) {
            (false, Some(method), Some((value, length))) => {
                written.push_str(&format!(".{method}({value})"));
                rest = &after[length..];
            }
            _ => {
                written.push_str(&rest[begins..at + 4]);
                rest = after;
            }
        }
    }
    written + rest
}

/// Returns the name of the method for an argument.
fn method(argument: &str) -> Option<&str> {
    match argument {
        "group_name" => Some("group"),
        name if name.is_empty() || OTHERS.contains(&name) => None,
        name => Some(name),
    }
}

/// Returns the value at the beginning of a text in Rust, and its length in the text.
fn value(text: &str) -> Option<(String, usize)> {
    if let Some(span) = text.strip_prefix("now() + ") {
        let (span, length) = value(span)?;
        return Some((format!("SystemTime::now() + {span}"), 8 + length));
    }
    if text.starts_with("now()") {
        return Some(("SystemTime::now()".to_owned(), 5));
    }
    if let Some(list) = text.strip_prefix("array[") {
        let end = list.find(']')?;
        return Some((format!("[{}]", list[..end].replace('\'', "\"")), 7 + end));
    }
    let quoted = text.strip_prefix("interval ").unwrap_or(text);
    if let Some(of) = quoted.strip_prefix('\'') {
        let end = of.find('\'')?;
        let length = text.len() - of.len() + end + 1;
        let is_json = of.starts_with(['{', '[']);
        let value = match duration(&of[..end]) {
            Some(duration) => duration,
            None if is_json || quoted.len() < text.len() => return None,
            None => format!("{:?}", &of[..end]),
        };
        return Some((value, length));
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let word = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    let is_plain = matches!(word, "true" | "false") || word.parse::<f64>().is_ok();
    is_plain.then(|| (word.to_owned(), word.len()))
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
        ] {
            assert_eq!(in_rust(sql), rust);
        }
        for sql in [
            "Type: select trax.schedule('m', 't', cron => '0 3 * * *')",
            "Name it: on_duplicate => 'replace'",
            "For example: undo => '{\"task\": \"a\"}'",
            "timeout => interval '1 fortnight', variance => ...",
            "As an admin of trax, type: select trax.grant_access('ROLE', 'worker')",
            "Write name => value.",
        ] {
            assert_eq!(in_rust(sql), sql);
        }
    }
}
