//! Manifests and groups as one document.
//!
//! Enters: a JSON object with `groups` and `manifests`, whose members have the names of the arguments of
//! `trax.configure_group` and `trax.schedule`. Leaves: what was created, changed, left as it was, or removed.
//! Holds: applying the same document again changes nothing; what a manifest leaves out has its default, except that
//! one which was switched off by hand stays off; only what an earlier apply created is ever pruned.

mod object;
mod order;

use super::change::{Change, one_of};
use super::{schedule, unschedule};
use crate::clock::Timestamp;
use crate::dependency;
use crate::entry::sql_function;
use crate::error::{Error, Result};
use crate::group::{self, HIGHEST_PRIORITY};
use crate::json;
use crate::spi::{self, Spi, arg, statement};
use object::Object;
use order::in_order;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

statement!(MANIFEST_SNAPSHOT, "manifest_snapshot.sql", TEXTOID);
statement!(GROUP_SNAPSHOT, "group_snapshot.sql", TEXTOID);
statement!(MANIFEST_PRUNABLE, "manifest_prunable.sql", TEXTARRAYOID);
statement!(GROUP_PRUNABLE, "group_prunable.sql", TEXTARRAYOID);

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
        kept_if(|| Ok((apply(spi, &document, prune)?, false)))
    })?;
    for action in actions {
        rows.push(&[
            arg(action.action),
            arg(action.kind),
            arg(action.name),
            action.detail.and_then(arg),
        ]);
    }
    Ok(rows.end())
});

/// Runs `work` and undoes what it did unless it says true, or fails.
fn kept_if<T>(work: impl FnOnce() -> Result<(T, bool)>) -> Result<T> {
    let mut outcome = None;
    let ended = spi::isolated(|| {
        let (value, keep) = work()?;
        outcome = Some(value);
        if keep {
            Ok(())
        } else {
            Err(Error::wrong_state("undone on purpose"))
        }
    });
    match (outcome, ended) {
        (Some(value), _) => Ok(value),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => unreachable!("what was kept has given its value"),
    }
}

const UNCHANGED: &str = "unchanged";

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
    let groups: Vec<group::Settings> = document
        .list("groups")?
        .iter()
        .map(read_group)
        .collect::<Result<_>>()?;
    refuse_repeated("group", groups.iter().map(|group| group.name.as_str()))?;
    let manifests: Vec<Entry> = document
        .list("manifests")?
        .iter()
        .map(Entry::read)
        .collect::<Result<_>>()?;
    refuse_repeated(
        "manifest",
        manifests.iter().map(|entry| entry.name.as_str()),
    )?;
    // Before any definition, as in trax.schedule().
    dependency::lock_edges();
    for settings in &groups {
        actions.push(apply_group(spi, settings, now)?);
    }
    // What a group allows is changed before any manifest, pruned groups included.
    let gone = if prune {
        prune_groups(spi, &groups, now)
    } else {
        Vec::new()
    };
    for settings in groups.iter().chain(&gone) {
        group::unpark(spi, settings);
    }
    for index in in_order(&manifests)? {
        actions.push(apply_manifest(spi, &manifests[index], now)?);
    }
    if prune {
        actions.extend(prune_missing(spi, &manifests, now)?);
    }
    actions.extend(gone.into_iter().map(|group| removed("group", group.name)));
    Ok(actions)
}

fn read_group(value: &Value) -> Result<group::Settings> {
    let keys = [
        "name",
        "max_active_jobs",
        "priority",
        "enabled",
        "max_per_key",
    ];
    let object = Object::new(value, "a group", &keys)?;
    Ok(group::Settings {
        name: object
            .name("name")?
            .ok_or_else(|| Error::null_argument("name"))?,
        max_active_jobs: Some(object.within("max_active_jobs", 0, i32::MAX)?.unwrap_or(0)),
        priority: Some(object.within("priority", 0, HIGHEST_PRIORITY)?.unwrap_or(0)),
        enabled: object.boolean("enabled")?,
        max_per_key: Some(object.within("max_per_key", 1, i32::MAX)?.unwrap_or(1)),
        applied: true,
    })
}

fn apply_group(spi: &Spi, settings: &group::Settings, now: Timestamp) -> Result<Action> {
    kept_if(|| {
        let before = snapshot(spi, &GROUP_SNAPSHOT, &settings.name);
        group::store(spi, settings, now);
        let after = snapshot(spi, &GROUP_SNAPSHOT, &settings.name);
        let action = compared("group", settings.name.clone(), before, after);
        let keep = action.action != UNCHANGED;
        Ok((action, keep))
    })
}

fn apply_manifest(spi: &Spi, entry: &Entry, now: Timestamp) -> Result<Action> {
    pgrx::check_for_interrupts!();
    let change = entry
        .change(spi, now)
        .map_err(|error| error.about(&entry.name))?;
    kept_if(|| {
        let before = snapshot(spi, &MANIFEST_SNAPSHOT, &entry.name);
        schedule(spi, &change).map_err(|error| error.about(&entry.name))?;
        let after = snapshot(spi, &MANIFEST_SNAPSHOT, &entry.name);
        let action = compared("manifest", entry.name.clone(), before, after);
        // A definition that stays the same is not written.
        let keep = action.action != UNCHANGED;
        Ok((action, keep))
    })
}

/// Forgets the settings of groups that an earlier apply created and this document no longer has.
fn prune_groups(spi: &Spi, groups: &[group::Settings], now: Timestamp) -> Vec<group::Settings> {
    let kept: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let rows = spi.query(&GROUP_PRUNABLE, &[arg(kept)]);
    let gone: Vec<_> = rows
        .iter()
        .map(|row| group::Settings::none(row.must(1)))
        .collect();
    for settings in &gone {
        group::store(spi, settings, now);
        group::forget(spi, &settings.name);
    }
    gone
}

fn removed(kind: &'static str, name: String) -> Action {
    Action {
        action: "removed",
        kind,
        name,
        detail: None,
    }
}

/// Removes manifests that an earlier apply created and this document no longer has.
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
            Ok(removed("manifest", name))
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
            action: UNCHANGED,
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

fn refuse_repeated<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(
                Error::invalid(format!("{kind} \"{name}\" is in the document twice"))
                    .detail(format!("Each name stands for one {kind}."))
                    .hint("Rename or remove one of the two."),
            );
        }
    }
    Ok(())
}
