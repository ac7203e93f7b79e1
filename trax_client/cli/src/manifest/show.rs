//! `trax manifest show`.

use std::process::ExitCode;

use serde_json::{Map, Value};
use tokio_postgres::types::Type;
use trax_client::Json;

use super::forecast::runs;
use crate::output::{Facts, Moment, Options, json, say};
use crate::session::Session;
use crate::similar::{Kind, unknown};
use crate::upcoming::UpcomingRun;
use trax_terminal::Failure;

const MANIFEST_SHOW: &str = include_str!("../query/manifest_show.sql");
/// Times of the definition and the state, as the query names them.
const TIMES: [(&str, &str); 9] = [
    ("run at", "run_at"),
    ("starts at", "starts_at"),
    ("ends at", "ends_at"),
    ("next run", "next_run_at"),
    ("parked since", "parked_since"),
    ("last queued", "last_queued_at"),
    ("last success", "last_success_at"),
    ("created", "created_at"),
    ("changed", "updated_at"),
];
const TEXTS: [(&str, &str); 22] = [
    ("task", "task"),
    ("runs as", "run_as"),
    ("group", "group_name"),
    ("cron", "cron"),
    ("time zone", "timezone"),
    ("every", "every"),
    ("dormant", "dormant"),
    ("priority", "priority"),
    ("max retries", "max_retries"),
    ("retry delay", "retry_delay"),
    ("timeout", "timeout"),
    ("overlap", "overlap"),
    ("max concurrency", "max_concurrency"),
    ("misfire", "misfire"),
    ("misfire after", "misfire_threshold"),
    ("misfire limit", "misfire_limit"),
    ("on dead letter", "on_dead_letter"),
    ("variance", "variance"),
    ("source", "source"),
    ("parked on", "parked_on"),
    ("disabled because", "disabled_reason"),
    ("cannot be evaluated", "evaluation_error"),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The manifest; may be repeated
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let mut manifests = Vec::with_capacity(arguments.names.len());
    for name in &arguments.names {
        let rows = session.find(MANIFEST_SHOW, &[(name, Type::TEXT)]).await?;
        let Some(row) = rows.first() else {
            return Err(unknown(&session, Kind::Manifest, name).await);
        };
        let Value::Object(manifest) = row.try_get::<_, Value>(0)? else {
            return Err(Failure::new(format!(
                "manifest \"{name}\" is not an object"
            )));
        };
        manifests.push((manifest, runs(&session, name, None, 3).await));
    }
    let output = arguments.output;
    if output.json {
        return json(&manifests.into_iter().map(|(m, _)| m).collect::<Vec<_>>())
            .map(|()| ExitCode::SUCCESS);
    }
    if output.quiet {
        output.keys(arguments.names.iter().cloned())?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts: Vec<String> = manifests
        .iter()
        .map(|(manifest, runs)| text(manifest, runs, session.now, output.verbose))
        .collect();
    say(&texts.join("\n\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a member in readable form; `None` if it is null or has no meaning.
fn member_text(manifest: &Map<String, Value>, key: &str) -> Option<String> {
    match manifest.get(key)? {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(true) => Some("yes".to_owned()),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            let texts = items.iter().filter_map(Value::as_str);
            Some(texts.collect::<Vec<_>>().join(", "))
        }
        other => Some(other.to_string()),
    }
}

fn text(
    manifest: &Map<String, Value>,
    runs: &Result<Vec<UpcomingRun>, Failure>,
    now: Moment,
    verbose: bool,
) -> String {
    let mut facts = Facts::default();
    facts.maybe("manifest", member_text(manifest, "name"));
    let enabled = member_text(manifest, "enabled").is_some();
    facts.add("enabled", if enabled { "yes" } else { "no" });
    for (label, key) in TEXTS {
        let only_verbose = key.starts_with("misfire_") || key == "max_concurrency";
        if !only_verbose || verbose {
            facts.maybe(label, member_text(manifest, key));
        }
    }
    let mode = member_text(manifest, "depends_mode").unwrap_or_default();
    let parents = member_text(manifest, "depends_on").map(|parents| format!("{mode} of {parents}"));
    facts.maybe("runs after", parents);
    facts.maybe("then run", member_text(manifest, "dependents"));
    for (label, key) in TIMES {
        let at = member_text(manifest, key).and_then(|text| Moment::parse(&text));
        facts.maybe(label, at.map(|at| at.full(now)));
    }
    let member = |key| Json::from(manifest.get(key).cloned().unwrap_or_default());
    match member_text(manifest, "sql") {
        Some(sql) => facts.verbatim("statement", &sql),
        None => facts.json("input", &member("input")),
    }
    facts.json("exclusions", &member("exclusions"));
    match runs {
        Ok(runs) => facts.rows("next runs", runs, now),
        Err(failure) => facts.block("next runs", &failure.to_string()),
    }
    facts.text()
}
