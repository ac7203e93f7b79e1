//! `trax manifest export`: the stored manifests as a document for `trax manifest apply`.
//!
//! Defaults are left out, including `enabled = true`: applying the document again changes nothing,
//! and does not enable manifests that were disabled by hand.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::output::{Options, say};
use crate::session::Session;
use crate::similar::{Kind, unknown};
use trax_terminal::Failure;
use trax_terminal::text::escaped;

const MANIFEST_EXPORT: &str = include_str!("../query/manifest_export.sql");
const GROUP_EXPORT: &str = include_str!("../query/group_export.sql");
const RATE_EXPORT: &str = include_str!("../query/rate_export.sql");
const TASK_EXPORT: &str = include_str!("../query/task_export.sql");

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  trax manifest export > jobs.toml
  trax manifest export nightly-report --format json
  trax manifest diff jobs.toml")]
pub(crate) struct Arguments {
    /// The manifests, with the settings of their groups and the rates of those; default: all, and
    /// the defaults of tasks
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The form of the document; --json is --format json
    #[arg(long, value_enum, default_value_t = Format::Toml)]
    format: Format,
    #[command(flatten)]
    output: Options,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Format {
    Toml,
    Json,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let names = Some(&arguments.names).filter(|names| !names.is_empty());
    let filters = [
        (&names as _, Type::TEXT_ARRAY),
        (&arguments.group as _, Type::TEXT),
    ];
    let rows = session.find(MANIFEST_EXPORT, &filters).await?;
    let stored = by_name(&rows)?;
    for name in &arguments.names {
        let is_it = |manifest: &Value| manifest["name"] == json!(name);
        if !stored.iter().any(is_it) {
            return Err(unknown(&session, Kind::Manifest, name).await);
        }
    }
    let groups = names_of_groups(&arguments, &stored);
    let all = groups.is_none();
    let of_groups = [(&groups as _, Type::TEXT_ARRAY)];
    let rows = session.find(RATE_EXPORT, &of_groups).await?;
    let rates: Vec<Entry> = by_name(&rows)?.iter().map(rate).collect();
    let rows = session.find(GROUP_EXPORT, &of_groups).await?;
    let groups: Vec<Entry> = by_name(&rows)?.iter().map(group).collect();
    let rows = match all {
        true => session.find(TASK_EXPORT, &[]).await?,
        false => Vec::new(),
    };
    let tasks: Vec<Entry> = by_name(&rows)?.iter().map(task).collect();
    let manifests: Vec<Entry> = stored.iter().map(manifest).collect();
    let output = arguments.output;
    if !output.quiet {
        refuse_null_input(&stored)?;
    }
    if output.quiet {
        let names = manifests.iter().map(|entry| name(entry).to_owned());
        output.keys(names)?;
    } else if output.json || arguments.format == Format::Json {
        let list = |entries: Vec<Entry>| entries.into_iter().map(object).collect::<Vec<_>>();
        let document = json!({
            "rates": list(rates), "groups": list(groups), "manifests": list(manifests),
            "tasks": list(tasks),
        });
        // Escaped line by line: these line breaks are not part of a string.
        let lines: Vec<_> = format!("{document:#}").lines().map(escaped).collect();
        say(&lines.join("\n"))?;
    } else {
        let lists = [
            ("rates", "rate", &rates[..]),
            ("groups", "group", &groups),
            ("manifests", "manifest", &manifests),
            ("tasks", "task", &tasks),
        ];
        say(toml(&lists)?.trim_end())?;
    }
    Ok(session.outcome())
}

/// Returns the objects in the rows, each once: the settings of a spread group are on every shard.
fn by_name(rows: &[Row]) -> Result<Vec<Value>, Failure> {
    let described = rows.iter().map(|row| {
        let value: Value = row.try_get(0)?;
        Ok((value["name"].as_str().unwrap_or_default().to_owned(), value))
    });
    let described: BTreeMap<String, Value> = described.collect::<Result<_, Failure>>()?;
    Ok(described.into_values().collect())
}

/// Refuses a manifest whose input is null: a null member of a document counts as left out.
fn refuse_null_input(manifests: &[Value]) -> Result<(), Failure> {
    let has_null = |manifest: &&Value| manifest.get("input").is_some_and(Value::is_null);
    let Some(manifest) = manifests.iter().find(has_null) else {
        return Ok(());
    };
    Err(Failure::new(format!(
        "manifest {}: its input is null, which no document can contain",
        manifest["name"]
    ))
    .hint(
        "give it another: select trax.schedule('NAME', input => '{}'); or name the others: trax manifest export NAME ...",
    ))
}

/// Returns the groups to export: all, unless manifests are selected.
fn names_of_groups(arguments: &Arguments, manifests: &[Value]) -> Option<Vec<String>> {
    if arguments.names.is_empty() && arguments.group.is_none() {
        return None;
    }
    let of_manifests = manifests.iter().filter_map(|m| m["group_name"].as_str());
    let mut names: Vec<String> = of_manifests.map(str::to_owned).collect();
    names.extend(arguments.group.clone());
    Some(names)
}

/// The members of an object that differ from their defaults, in reading order.
type Entry = Vec<(&'static str, Value)>;

fn manifest(stored: &Value) -> Entry {
    let several = stored["max_concurrency"].as_i64().unwrap_or(1) > 1;
    let overlap = if several { "allow" } else { "queue" };
    let defaults = [
        ("name", Value::Null),
        ("task", Value::Null),
        ("sql", Value::Null),
        ("run_as", Value::Null),
        ("cron", Value::Null),
        ("timezone", json!("UTC")),
        ("every", Value::Null),
        ("run_at", Value::Null),
        ("depends_on", json!([])),
        ("depends_mode", json!("all")),
        ("dormant", json!(false)),
        ("group_name", json!("default")),
        ("priority", json!(0)),
        ("max_retries", Value::Null),
        ("retry_delay", Value::Null),
        ("timeout", Value::Null),
        ("on_dead_letter", json!("stop")),
        ("misfire", json!("fire_once")),
        ("misfire_threshold", json!("00:01:00")),
        ("misfire_limit", json!(10)),
        ("overlap", json!(overlap)),
        ("max_concurrency", json!(1)),
        ("variance", Value::Null),
        ("starts_at", Value::Null),
        ("ends_at", Value::Null),
        ("enabled", json!(true)),
        ("input", json!({})),
        ("exclusions", Value::Null),
    ];
    entry(stored, &defaults)
}

fn rate(stored: &Value) -> Entry {
    let members = ["name", "allowed", "period", "burst"];
    entry(stored, &members.map(|member| (member, Value::Null)))
}

fn group(stored: &Value) -> Entry {
    let defaults = [
        ("name", Value::Null),
        ("max_active_jobs", Value::Null),
        ("priority", json!(0)),
        ("max_per_key", json!(1)),
        ("rate", Value::Null),
        ("max_waiting", Value::Null),
        ("overflow", json!("reject")),
        ("enabled", json!(true)),
    ];
    entry(stored, &defaults)
}

fn task(stored: &Value) -> Entry {
    let defaults = [
        ("name", Value::Null),
        ("max_retries", Value::Null),
        ("retry_delay", Value::Null),
        ("backoff", Value::Null),
        ("retry_delay_max", Value::Null),
        ("timeout", Value::Null),
        ("on_final_failure", json!("dead_letter")),
    ];
    entry(stored, &defaults)
}

fn entry(stored: &Value, defaults: &[(&'static str, Value)]) -> Entry {
    let given = |(key, default): &(&'static str, Value)| {
        let value = stored.get(*key)?;
        (!value.is_null() && value != default).then(|| (*key, value.clone()))
    };
    defaults.iter().filter_map(given).collect()
}

fn name(entry: &Entry) -> &str {
    let named = entry.iter().find(|(key, _)| *key == "name");
    named
        .and_then(|(_, value)| value.as_str())
        .unwrap_or_default()
}

fn object(entry: Entry) -> Value {
    let members = entry
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    Value::Object(members.collect::<Map<_, _>>())
}

/// Returns a document of lists: the name of each, the kind of its entries, and these.
fn toml(lists: &[(&str, &str, &[Entry])]) -> Result<String, Failure> {
    let mut text = String::new();
    for (list, kind, entries) in lists {
        for entry in *entries {
            text.push_str(&format!("[[{list}]]\n"));
            for (key, value) in entry {
                let value = toml_of(value).map_err(|what| {
                    let name = name(entry);
                    Failure::new(format!(
                        "{kind} \"{name}\": {key} has {what}, as TOML has not"
                    ))
                    .hint("export it with: trax manifest export --format json")
                })?;
                text.push_str(&format!("{key} = {value}\n"));
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Returns a value as one line of TOML that reads as the same value, or the reason why TOML cannot
/// represent it.
fn toml_of(value: &Value) -> Result<String, String> {
    match value {
        Value::Null => Err("a null".to_owned()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::String(text) => Ok(quoted(text)),
        Value::Number(number) => toml_number(&number.to_string()),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(toml_of).collect::<Result<_, _>>()?;
            Ok(format!("[{}]", values.join(", ")))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| Ok(format!("{} = {}", toml_key(key), toml_of(value)?)))
                .collect::<Result<_, String>>()?;
            Ok(format!("{{ {} }}", members.join(", ")))
        }
    }
}

/// Returns a text in quotes. TOML accepts every escape of JSON.
fn quoted(text: &str) -> String {
    escaped(&json!(text).to_string())
}

fn toml_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !key.is_empty() && key.chars().all(bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// Returns the number if TOML preserves every digit.
fn toml_number(text: &str) -> Result<String, String> {
    let integer = text.parse::<i64>().is_ok();
    let float = text.parse::<f64>().map(|float| json!(float).to_string());
    match integer || float.as_deref() == Ok(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("the number {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_its_default_is_left_out() {
        let stored = json!({"name": "a", "task": "t", "cron": null, "timezone": "UTC", "priority": 3,
            "max_concurrency": 2, "overlap": "allow", "depends_on": [], "enabled": true, "input": {"n": [1.5, "x"]}});
        let manifests = [manifest(&stored)];
        let text =
            toml(&[("manifests", "manifest", &manifests)]).map_err(|failure| failure.to_string());
        let expected = "[[manifests]]\nname = \"a\"\ntask = \"t\"\npriority = 3\nmax_concurrency = 2\n\
                        input = { n = [1.5, \"x\"] }\n\n";
        assert_eq!(text.as_deref(), Ok(expected));
    }

    #[test]
    fn what_toml_cannot_say_is_an_error() {
        for text in [
            "null",
            "[null]",
            "123456789012345678901234567890",
            "1.10",
            "1e400",
        ] {
            let value: Value = serde_json::from_str(text).expect("it is JSON");
            assert!(toml_of(&value).is_err(), "{text}");
        }
        for text in [
            "1",
            "-7",
            "1.5",
            "true",
            "\"a\\nb\"",
            "{\"a b\": {\"c\": [], \"\": {}, \"d\": \"{  }\"}}",
            "\"\\u001b[2J\\u007f\\u202e\\u2028\\n'\\\"\\\\\"",
            "1e22",
        ] {
            let value: Value = serde_json::from_str(text).expect("it is JSON");
            let read: toml::Table = format!("v = {}", toml_of(&value).expect("it is TOML"))
                .parse()
                .expect("it can be read");
            let back = crate::document::json_of(toml::Value::Table(read));
            assert_eq!(back, json!({ "v": value }));
        }
    }
}
