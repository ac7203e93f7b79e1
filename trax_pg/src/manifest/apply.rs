//! Manifests and groups as one document.
//!
//! Enters: a JSON object with `groups` and `manifests`, whose members have the names of the arguments of
//! `trax.configure_group` and `trax.schedule`. Leaves: what was created, changed, left as it was, or removed.
//! Holds: applying the same document again changes nothing; what a manifest leaves out has its default, except that
//! one which was switched off by hand stays off; only what an earlier apply created is ever pruned.

use super::change::{Change, one_of};
use super::{schedule, unschedule};
use crate::clock::Timestamp;
use crate::dependency;
use crate::entry::{checked_name, sql_function};
use crate::error::{Error, Result};
use crate::group::{self, HIGHEST_PRIORITY};
use crate::json;
use crate::spi::{self, Spi, arg, statement};
use pgrx::{JsonB, pg_sys};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

statement!(MANIFEST_SNAPSHOT, "manifest_snapshot.sql", TEXTOID);
statement!(GROUP_SNAPSHOT, "group_snapshot.sql", TEXTOID);
statement!(MANIFEST_PRUNABLE, "manifest_prunable.sql", TEXTARRAYOID);
statement!(TEXT_INTERVAL, "text_interval.sql", TEXTOID);
statement!(TEXT_TIME, "text_time.sql", TEXTOID);

sql_function!(trax_apply, pg_finfo_trax_apply, |call| {
    let document = call
        .datum(0)
        .ok_or_else(|| Error::null_argument("document"))?;
    let document = json::value(document, "the document")?;
    let prune = call.optional::<bool>(1).unwrap_or(false);
    let dry_run = call.optional::<bool>(2).unwrap_or(false);
    let mut rows = call.rows();
    let actions = spi::connected(|spi| {
        if !dry_run {
            return apply(spi, &document, prune);
        }
        let mut outcome = None;
        let undone = spi::isolated(|| -> Result<()> {
            outcome = Some(apply(spi, &document, prune));
            Err(Error::wrong_state("a dry run is undone"))
        });
        match (outcome, undone) {
            (Some(outcome), _) => outcome,
            (None, Err(message)) => Err(Error::invalid(message)),
            (None, Ok(())) => unreachable!("a dry run always ends in an error"),
        }
    })?;
    for action in actions {
        rows.push(&mut [
            arg(action.action),
            arg(action.kind),
            arg(action.name),
            action.detail.and_then(arg),
        ]);
    }
    Ok(rows.end())
});

/// One row of the result.
struct Action {
    action: &'static str,
    kind: &'static str,
    name: String,
    detail: Option<String>,
}

fn apply(spi: &Spi, document: &Value, prune: bool) -> Result<Vec<Action>> {
    let document = Object::new(document, "the document", &["groups", "manifests"])?;
    let now = Timestamp::now();
    let mut actions = Vec::new();
    for group in document.list("groups")? {
        actions.push(apply_group(spi, group, now)?);
    }
    let manifests: Vec<Entry> = document
        .list("manifests")?
        .iter()
        .map(Entry::read)
        .collect::<Result<_>>()?;
    refuse_repeated(&manifests)?;
    for index in in_order(&manifests)? {
        actions.push(apply_manifest(spi, &manifests[index], now)?);
    }
    if prune {
        actions.extend(prune_missing(spi, &manifests, now)?);
    }
    Ok(actions)
}

fn apply_group(spi: &Spi, value: &Value, now: Timestamp) -> Result<Action> {
    let keys = [
        "name",
        "max_active_jobs",
        "priority",
        "enabled",
        "max_per_key",
    ];
    let object = Object::new(value, "a group", &keys)?;
    let name = object
        .name("name")?
        .ok_or_else(|| Error::null_argument("name"))?;
    let settings = group::Settings {
        name: name.clone(),
        max_active_jobs: Some(object.within("max_active_jobs", 0, i32::MAX)?.unwrap_or(0)),
        priority: Some(object.within("priority", 0, HIGHEST_PRIORITY)?.unwrap_or(0)),
        enabled: object.boolean("enabled")?,
        max_per_key: Some(object.within("max_per_key", 1, i32::MAX)?.unwrap_or(1)),
    };
    let before = snapshot(spi, &GROUP_SNAPSHOT, &name);
    group::store(spi, &settings, now);
    let after = snapshot(spi, &GROUP_SNAPSHOT, &name);
    Ok(compared("group", name, before, after))
}

fn apply_manifest(spi: &Spi, entry: &Entry, now: Timestamp) -> Result<Action> {
    let change = entry
        .change(spi, now)
        .map_err(|error| error.about(&entry.name))?;
    let before = snapshot(spi, &MANIFEST_SNAPSHOT, &entry.name);
    schedule(spi, &change).map_err(|error| error.about(&entry.name))?;
    let after = snapshot(spi, &MANIFEST_SNAPSHOT, &entry.name);
    Ok(compared("manifest", entry.name.clone(), before, after))
}

/// Removes what an earlier apply created and this document no longer has.
fn prune_missing(spi: &Spi, manifests: &[Entry], now: Timestamp) -> Result<Vec<Action>> {
    let kept: Vec<String> = manifests.iter().map(|entry| entry.name.clone()).collect();
    let rows = spi.query(&MANIFEST_PRUNABLE, &[arg(kept)]);
    let gone: Vec<(i64, String)> = rows.iter().map(|row| (row.must(1), row.must(2))).collect();
    // They may depend on each other; what stays must not depend on them.
    for (id, name) in &gone {
        dependency::replace(spi, *id, name, &[])?;
    }
    gone.into_iter()
        .map(|(_, name)| {
            unschedule(spi, &name, now)?;
            Ok(Action {
                action: "removed",
                kind: "manifest",
                name,
                detail: None,
            })
        })
        .collect()
}

/// What is stored, as names and JSON texts; empty when there is nothing.
type Snapshot = BTreeMap<String, String>;

fn snapshot(spi: &Spi, statement: &spi::Statement, name: &str) -> Snapshot {
    let rows = spi.query(statement, &[arg(name)]);
    rows.iter().map(|row| (row.must(1), row.must(2))).collect()
}

fn compared(kind: &'static str, name: String, before: Snapshot, after: Snapshot) -> Action {
    if before.is_empty() {
        return Action {
            action: "created",
            kind,
            name,
            detail: None,
        };
    }
    let changes: Vec<String> = after
        .iter()
        .filter(|&(key, value)| before.get(key) != Some(value))
        .map(|(key, value)| {
            format!(
                "{key}: {} -> {value}",
                before.get(key).map_or("null", String::as_str)
            )
        })
        .collect();
    if changes.is_empty() {
        return Action {
            action: "unchanged",
            kind,
            name,
            detail: None,
        };
    }
    Action {
        action: "changed",
        kind,
        name,
        detail: Some(changes.join(", ")),
    }
}

/// A manifest of the document.
struct Entry<'a> {
    name: String,
    depends_on: Option<Vec<String>>,
    object: Object<'a>,
}

impl<'a> Entry<'a> {
    fn read(value: &'a Value) -> Result<Self> {
        const KEYS: [&str; 25] = [
            "name",
            "task",
            "input",
            "cron",
            "every",
            "run_at",
            "depends_on",
            "depends_mode",
            "dormant",
            "timezone",
            "group_name",
            "priority",
            "max_retries",
            "retry_delay",
            "timeout",
            "misfire",
            "misfire_threshold",
            "misfire_limit",
            "overlap",
            "max_concurrency",
            "variance",
            "exclusions",
            "starts_at",
            "ends_at",
            "enabled",
        ];
        let object = Object::new(value, "a manifest", &KEYS)?;
        let name = object
            .name("name")?
            .ok_or_else(|| Error::null_argument("name"))?;
        let depends_on = object
            .names("depends_on")
            .map_err(|error| error.about(&name))?;
        Ok(Self {
            name,
            depends_on,
            object,
        })
    }

    fn change(&self, spi: &Spi, now: Timestamp) -> Result<Change> {
        let object = &self.object;
        let change = Change {
            name: self.name.clone(),
            task: object
                .name("task")?
                .ok_or_else(|| Error::null_argument("task"))?,
            input: object.json("input"),
            group: object.name("group_name")?,
            cron: object.text("cron")?,
            every: object.interval(spi, "every", 1)?,
            run_at: object.time(spi, "run_at")?,
            depends_on: self.depends_on.clone(),
            depends_mode: one_of(
                object.text("depends_mode")?,
                "depends_mode",
                &["all", "any"],
            )?,
            dormant: object.boolean("dormant")?,
            timezone: object.text("timezone")?,
            priority: object.within("priority", 0, HIGHEST_PRIORITY)?,
            max_retries: object.within("max_retries", 0, i32::MAX - 1)?,
            retry_delay: object.interval(spi, "retry_delay", 0)?,
            timeout: object.interval(spi, "timeout", 1)?,
            misfire: one_of(
                object.text("misfire")?,
                "misfire",
                &["fire_once", "fire_all", "skip"],
            )?,
            misfire_threshold: object.interval(spi, "misfire_threshold", 0)?,
            misfire_limit: object.within("misfire_limit", 1, i32::MAX)?,
            overlap: one_of(
                object.text("overlap")?,
                "overlap",
                &["queue", "skip", "allow"],
            )?,
            max_concurrency: object.within("max_concurrency", 1, i32::MAX)?,
            variance: object.interval(spi, "variance", 0)?,
            exclusions: object.json("exclusions"),
            starts_at: object.time(spi, "starts_at")?,
            ends_at: object.time(spi, "ends_at")?,
            enabled: object.boolean("enabled")?,
            replace: true,
            applied: true,
            now,
        };
        change.check()?;
        Ok(change)
    }
}

fn refuse_repeated(manifests: &[Entry]) -> Result<()> {
    let mut names: Vec<&str> = manifests.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid(format!(
            "manifest \"{}\" is in the document twice",
            pair[0]
        ))
        .detail("Each name stands for one manifest.")
        .hint("Rename or remove one of the two.")),
        None => Ok(()),
    }
}

/// Positions of the manifests, parents first.
fn in_order(manifests: &[Entry]) -> Result<Vec<usize>> {
    let mut order = Vec::with_capacity(manifests.len());
    let mut path = Vec::new();
    for index in 0..manifests.len() {
        visit(manifests, index, &mut order, &mut path)?;
    }
    Ok(order)
}

fn visit(
    manifests: &[Entry],
    index: usize,
    order: &mut Vec<usize>,
    path: &mut Vec<usize>,
) -> Result<()> {
    if order.contains(&index) {
        return Ok(());
    }
    if let Some(start) = path.iter().position(|&on_path| on_path == index) {
        let circle: Vec<&str> = path[start..]
            .iter()
            .chain([&index])
            .map(|&index| manifests[index].name.as_str())
            .collect();
        return Err(
            Error::invalid(format!("manifest \"{}\" would depend on itself", circle[0]))
                .detail(format!("The circle is {}.", circle.join(" -> ")))
                .hint("Leave out one of these edges in depends_on."),
        );
    }
    path.push(index);
    for parent in manifests[index].depends_on.iter().flatten() {
        if let Some(parent) = manifests.iter().position(|entry| &entry.name == parent) {
            visit(manifests, parent, order, path)?;
        }
    }
    path.pop();
    order.push(index);
    Ok(())
}

/// A JSON object of the document whose members are known by name; a null member is one that is left out.
struct Object<'a>(&'a Map<String, Value>);

impl<'a> Object<'a> {
    fn new(value: &'a Value, what: &str, keys: &[&str]) -> Result<Self> {
        let Value::Object(map) = value else {
            return Err(Error::invalid(format!("{what} must be a JSON object"))
                .detail(format!("It is {value}."))
                .hint(format!("Its members are: {}.", keys.join(", "))));
        };
        match map.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => Err(
                Error::invalid(format!("{what} has an unknown member \"{key}\""))
                    .detail(format!("It stands in {value}."))
                    .hint(format!("The members are: {}.", keys.join(", "))),
            ),
            None => Ok(Self(map)),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn list(&self, key: &str) -> Result<&'a [Value]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(wrong_type(key, other, "a list")),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(wrong_type(key, other, "a text")),
        }
    }

    fn name(&self, key: &str) -> Result<Option<String>> {
        self.text(key)?
            .map(|text| checked_name(text, key))
            .transpose()
    }

    fn names(&self, key: &str) -> Result<Option<Vec<String>>> {
        if self.get(key).is_none() {
            return Ok(None);
        }
        let names = self.list(key)?.iter().map(|value| match value {
            Value::String(text) => checked_name(text.clone(), key),
            other => Err(wrong_type(key, other, "a list of texts")),
        });
        names.collect::<Result<Vec<String>>>().map(Some)
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_type(key, other, "true or false")),
        }
    }

    fn within(&self, key: &str, low: i32, high: i32) -> Result<Option<i32>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        match number.filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong_type(
                key,
                value,
                &format!("a whole number from {low} to {high}"),
            )),
        }
    }

    fn json(&self, key: &str) -> Option<pg_sys::Datum> {
        self.get(key).and_then(|value| arg(JsonB(value.clone())))
    }

    fn interval(&self, spi: &Spi, key: &str, shortest: i64) -> Result<Option<pg_sys::Datum>> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let words = "an interval such as \"5 min\"";
        let (datum, micros) = spi::isolated(|| {
            let rows = spi.query(&TEXT_INTERVAL, &[arg(text.as_str())]);
            let row = rows
                .first()
                .expect("a select without a table gives one row");
            let interval: pgrx::datum::Interval = row.must(1);
            let micros = crate::clock::interval_micros(&interval);
            Ok((arg(interval), micros))
        })
        .map_err(|_| wrong_type(key, &Value::String(text.clone()), words))?;
        if !(shortest..=crate::entry::LONGEST_MICROS).contains(&micros) {
            return Err(wrong_type(
                key,
                &Value::String(text),
                "a positive interval, at most 10 years",
            ));
        }
        Ok(datum)
    }

    fn time(&self, spi: &Spi, key: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        spi::isolated(|| {
            let rows = spi.query(&TEXT_TIME, &[arg(text.as_str())]);
            Ok(rows.first().and_then(|row| row.get(1)))
        })
        .map_err(|_| {
            wrong_type(
                key,
                &Value::String(text),
                "a time such as \"2026-12-24 18:00 UTC\"",
            )
        })
    }
}

fn wrong_type(key: &str, value: &Value, wanted: &str) -> Error {
    Error::invalid(format!("member \"{key}\" must be {wanted}"))
        .detail(format!("It is {value}."))
        .hint(format!("Give {wanted}, or leave {key} out."))
}
