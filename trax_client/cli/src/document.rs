//! Files that are TOML or JSON.

use std::io::Read;
use std::path::Path;

use serde_json::Value;
use trax_terminal::Failure;

use crate::place::not_finite;

/// Examples of a document, for the hints of errors.
pub(crate) struct Kind {
    pub(crate) json: &'static str,
    pub(crate) toml: &'static str,
}

/// Returns the text of a file, or of standard input for `-`.
pub(crate) fn text(file: &str) -> Result<String, Failure> {
    let read = match file {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        file => std::fs::read_to_string(file),
    };
    read.map_err(|error| Failure::usage(format!("{file} cannot be read: {error}")))
}

/// Parses a document by its file name extension. Without one it is JSON if it begins like JSON.
pub(crate) fn parse(file: &str, text: &str, kind: &Kind) -> Result<Value, Failure> {
    let ending = Path::new(file)
        .extension()
        .and_then(|ending| ending.to_str());
    let json = match ending {
        Some("json") => true,
        Some("toml") => false,
        _ => text.trim_start().starts_with('{'),
    };
    if json {
        return serde_json::from_str(text).map_err(|error| {
            Failure::usage(format!("{file} is not JSON: {error}")).hint(kind.json)
        });
    }
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        Failure::usage(format!(
            "{file} is not TOML: line {line}: {}",
            error.message()
        ))
        .hint(kind.toml)
    })?;
    if let Some((line, key, number)) = not_finite(text) {
        return Err(Failure::usage(format!("{number} is no number of JSON"))
            .hint(format!("write a finite number, or a text: \"{number}\""))
            .at(&format!("{file}:{line}: {key}")));
    }
    Ok(json_of(toml::Value::Table(table)))
}

/// Converts TOML to JSON; dates and times become text.
pub(crate) fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(at) => Value::String(at.to_string()),
        toml::Value::Array(values) => values.into_iter().map(json_of).collect(),
        toml::Value::Table(table) => {
            let members = table.into_iter().map(|(key, value)| (key, json_of(value)));
            Value::Object(members.collect())
        }
    }
}
