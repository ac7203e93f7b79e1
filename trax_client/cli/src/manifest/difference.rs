//! The report of `trax.apply` in readable form.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_postgres::Row;

use crate::output::{Tone, one_line, paint};

/// A group or manifest and its change.
#[derive(Debug, Serialize)]
pub(super) struct ManifestDifference {
    pub(super) action: String,
    pub(super) kind: String,
    pub(super) name: String,
    changes: Vec<ValueChange>,
    /// The source that owns it.
    pub(super) source: Option<String>,
}

/// A changed value.
#[derive(Debug, PartialEq, Serialize)]
struct ValueChange {
    key: String,
    before: Value,
    after: Value,
}

impl ManifestDifference {
    pub(super) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let detail: Option<String> = row.try_get("detail")?;
        Ok(ManifestDifference {
            action: row.try_get("action")?,
            kind: row.try_get("kind")?,
            name: row.try_get("name")?,
            changes: detail.as_deref().map(changes).unwrap_or_default(),
            source: None,
        })
    }

    pub(super) fn changes_something(&self) -> bool {
        self.action != "unchanged"
    }

    /// Returns "+ manifest nightly", or "~ manifest nightly" and a line for each value. Names the
    /// owner if it is another source than the `applying` one.
    pub(super) fn text(&self, applying: Option<&str>) -> String {
        let (sign, tone) = match self.action.as_str() {
            "created" => ("+", Tone::Good),
            "changed" => ("~", Tone::Warn),
            "removed" => ("-", Tone::Bad),
            _ => (" ", Tone::Plain),
        };
        let name = one_line(&self.name);
        let owner = match self.source.as_deref() {
            Some(source) if Some(source) != applying => format!(", of source {}", one_line(source)),
            _ => String::new(),
        };
        let mut lines = vec![paint(&format!("{sign} {} {name}{owner}", self.kind), tone)];
        for change in &self.changes {
            let text = format!("    {}: {} -> {}", change.key, change.before, change.after);
            lines.push(one_line(&text));
        }
        lines.join("\n")
    }
}

/// Returns `key: before -> after, key: ...`, where both are JSON.
fn changes(detail: &str) -> Vec<ValueChange> {
    let mut changes = Vec::new();
    let mut rest = detail;
    while let Some((key, after_key)) = rest.split_once(": ") {
        let Some((before, after_before)) = value(after_key) else {
            break;
        };
        let Some((after, after_all)) = after_before.strip_prefix(" -> ").and_then(value) else {
            break;
        };
        changes.push(ValueChange {
            key: key.to_owned(),
            before,
            after,
        });
        rest = after_all.strip_prefix(", ").unwrap_or_default();
    }
    changes
}

/// Returns the JSON value at the beginning of a text, and the rest. A value nested too deeply for
/// the parser is returned as text.
fn value(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let raw = values.next()?.ok()?.get();
    let value = serde_json::from_str(raw).unwrap_or_else(|_| Value::from(raw));
    Some((value, &text[values.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_changes_of_a_detail_are_distinguished() {
        let detail = r#"cron: "0 3 * * *" -> null, every: null -> "00:00:30", input: {"a": ", x: 1 -> 2"} -> {}, priority: 0 -> 3"#;
        let change = |key: &str, before, after| ValueChange {
            key: key.to_owned(),
            before,
            after,
        };
        assert_eq!(
            changes(detail),
            [
                change("cron", json!("0 3 * * *"), json!(null)),
                change("every", json!(null), json!("00:00:30")),
                change("input", json!({"a": ", x: 1 -> 2"}), json!({})),
                change("priority", json!(0), json!(3)),
            ]
        );
    }

    #[test]
    fn a_value_of_any_depth_hides_no_change_after_it() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let found = changes(&format!("input: {deep} -> {{}}, priority: 0 -> 3"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].before, json!(deep));
        assert_eq!(found[1].key, "priority");
    }
}
