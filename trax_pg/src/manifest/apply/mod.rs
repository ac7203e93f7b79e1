//! Manifests, groups and tasks as one document.
//!
//! Enters: a JSON object with `groups`, `manifests` and `tasks`, whose members have the names of
//! the arguments of `trax.configure_group`, `trax.schedule` and `trax.configure_task`. Leaves: the
//! created, changed, unchanged and removed objects. Holds: applying the same document again changes
//! nothing; an omitted member has its default, except that a manifest which was disabled by hand
//! stays disabled; only objects that an earlier apply created are pruned.

mod order;
mod source;
mod tasks;

use super::change::{Change, ON_DEAD_LETTER};
use super::definition::find;
use super::work::Work;
use super::{lock_to_remove, lock_waiting, remove, schedule};
use crate::audit;
use crate::audit::Kind;
use crate::columns::HIGHEST_PRIORITY;
use crate::document::Object;
use crate::error::{Error, Result};
use crate::group;
use crate::manifest_state;
use crate::manifest_state::dependency;
use crate::server::call::sql_function;
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::json;
use crate::server::rights::{Caller, as_owner};
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::stored_settings::{Difference, StoredSettings};
use order::in_order;
use pgrx::PgSqlErrorCode;
use serde_json::Value;
use source::{Gone, refuse_others};
use std::collections::HashSet;

statement!(ManifestLockNamed, "manifest/lock_named.sql", { names: TEXTARRAYOID } -> i64);

sql_function!(trax_apply, pg_finfo_trax_apply, |call| {
    as_owner(call, |caller| {
        let document = call
            .datum(0)
            .ok_or_else(|| Error::null_argument("document"))?;
        let document = json::value(document, "the document")?;
        let prune = call.optional::<bool>(1).unwrap_or(false);
        let dry_run = call.optional::<bool>(2).unwrap_or(false);
        let source = call.optional_name(3, "source")?;
        let source = source.as_deref();
        let mut rows = call.rows();
        let actions = spi::connected(|spi| {
            if !dry_run {
                return apply(spi, &document, prune, source, caller);
            }
            kept_if(|| Ok((apply(spi, &document, prune, source, caller)?, false)))
        })?;
        for action in actions {
            rows.push(&[
                arg(action.action),
                arg(action.kind.name()),
                arg(action.name),
                action.detail.and_then(arg),
            ]);
        }
        Ok(rows.end())
    })
});

/// Runs `work` and rolls it back unless it returns true; an error rolls it back, too.
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

/// A row of the result.
struct Action {
    action: &'static str,
    kind: Kind,
    name: String,
    detail: Option<String>,
}

impl Action {
    /// Records it as the call that would have done the same alone.
    fn record(&self, spi: &Spi) {
        let action = match (self.kind, self.action) {
            (_, UNCHANGED) => return,
            (Kind::Manifest, "removed") => "unschedule",
            (Kind::Manifest, _) => "schedule",
            _ => "configure",
        };
        let note = self.detail.as_deref().or(Some(self.action));
        audit::record(spi, action, self.kind, &self.name, note);
    }
}

fn apply(
    spi: &Spi,
    document: &Value,
    prune: bool,
    source: Option<&str>,
    caller: Caller,
) -> Result<Vec<Action>> {
    let document = Object::new(document, "the document", &["groups", "manifests", "tasks"])?;
    let now = Timestamp::now();
    let mut actions = Vec::new();
    let groups: Vec<group::Settings> = document
        .list("groups")?
        .iter()
        .map(|value| read_group(value, source))
        .collect::<Result<_>>()?;
    refuse_repeated("group", groups.iter().map(|group| group.name.as_str()))?;
    let manifests: Vec<Entry> = document
        .list("manifests")?
        .iter()
        .map(|value| Entry::read(value, source, caller))
        .collect::<Result<_>>()?;
    refuse_repeated(
        "manifest",
        manifests.iter().map(|entry| entry.name.as_str()),
    )?;
    let tasks = tasks::read(spi, document.list("tasks")?, source)?;
    let order = in_order(&manifests)?;
    // Before any definition, as in trax.schedule().
    dependency::lock_edges();
    if let Some(source) = source {
        refuse_others(spi, &groups, &manifests, &tasks, source)?;
    }
    for group in &groups {
        let known = group.require_rate(spi);
        known.map_err(|error| error.about_group(&group.name))?;
    }
    let gone = if prune {
        Gone::find(spi, &groups, &manifests, source)
    } else {
        Gone::default()
    };
    let changing = apply_groups(spi, &groups, &gone, now, &mut actions);
    tasks::apply(spi, &tasks, prune, source, now, &mut actions)?;
    let same = lock_changing(spi, &manifests, &gone, &changing);
    group::unpark(spi, &changing);
    for index in order {
        actions.push(match same[index] {
            true => unchanged(Kind::Manifest, manifests[index].name.clone()),
            false => apply_manifest(spi, &manifests[index], now)?,
        });
    }
    actions.extend(prune_missing(spi, gone.manifests, now)?);
    let groups = gone.groups.into_iter();
    actions.extend(groups.map(|group| removed(Kind::Group, group.name)));
    for action in &actions {
        action.record(spi);
    }
    Ok(actions)
}

fn nameless(what: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
        format!("{what} of the document has no name"),
    )
    .detail("Its member \"name\" is missing or null.")
    .hint(r#"Name it: {"name": "nightly-report", ...}"#)
}

/// Adds the name of the group, manifest or task, if it has one, to an error.
fn about(kind: Kind, value: &Value) -> impl Fn(Error) -> Error {
    let name = value.get("name").and_then(Value::as_str).map(str::to_owned);
    move |error| match (&name, kind) {
        (Some(name), Kind::Group) => error.about_group(name),
        (Some(name), Kind::Task) => error.about_task(name),
        (Some(name), _) => error.about(name),
        (None, _) => error,
    }
}

fn read_group(value: &Value, source: Option<&str>) -> Result<group::Settings> {
    settings(value, source).map_err(about(Kind::Group, value))
}

fn settings(value: &Value, source: Option<&str>) -> Result<group::Settings> {
    let keys = [
        "name",
        "max_active_jobs",
        "priority",
        "enabled",
        "max_per_key",
        "rate",
        "max_waiting",
        "overflow",
    ];
    let object = Object::new(value, "a group", &keys)?;
    Ok(group::Settings {
        name: object
            .new_name("name")?
            .ok_or_else(|| nameless("a group"))?,
        max_active_jobs: Some(object.within("max_active_jobs", 0, i32::MAX)?.unwrap_or(0)),
        priority: Some(object.within("priority", 0, HIGHEST_PRIORITY)?.unwrap_or(0)),
        enabled: object.boolean("enabled")?,
        max_per_key: Some(object.within("max_per_key", 1, i32::MAX)?.unwrap_or(1)),
        rate: Some(object.name("rate")?.unwrap_or_default()),
        max_waiting: Some(object.within("max_waiting", 0, i32::MAX)?.unwrap_or(0)),
        overflow: one_of(object.text("overflow")?, "overflow", &group::OVERFLOW)?
            .or_else(|| Some(group::OVERFLOW[0].to_owned())),
        applied: true,
        source: source.map(str::to_owned),
    })
}

/// Writes the settings of groups that have others, and deletes those of groups that are gone;
/// returns the manifests that may continue. All locks on groups come first, then the waiting jobs
/// of manifests that are to go, then leases.
fn apply_groups(
    spi: &Spi,
    groups: &[group::Settings],
    gone: &Gone,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Vec<i64> {
    let changed: Vec<bool> = groups
        .iter()
        .map(|settings| !settings.are_stored(spi))
        .collect();
    let changing = || {
        let pairs = groups.iter().zip(&changed).filter(|&(_, changed)| *changed);
        pairs.map(|(settings, _)| settings).chain(&gone.groups)
    };
    group::lock_entries(spi, changing());
    group::lock_all(changing().map(|settings| settings.name.as_str()));
    lock_waiting(spi, gone.manifests.iter().map(|&(id, _)| id).collect());
    for (settings, changed) in groups.iter().zip(&changed) {
        let name = settings.name.clone();
        if !changed {
            actions.push(unchanged(Kind::Group, name));
            continue;
        }
        let before = StoredSettings::of_group(spi, &name);
        group::store(spi, settings, now);
        let difference = before.difference(&StoredSettings::of_group(spi, &name));
        actions.push(compared(Kind::Group, name, difference));
    }
    for settings in &gone.groups {
        group::store(spi, settings, now);
        group::forget(spi, &settings.name);
    }
    group::count(spi, &changing().collect::<Vec<_>>());
    let all: Vec<_> = groups.iter().chain(&gone.groups).collect();
    group::parked(spi, &all)
}

/// Locks the manifests that will change or go, and those whose group was enabled, in the order in
/// which outcomes lock them; returns which manifests of the document stay the same.
fn lock_changing(spi: &Spi, manifests: &[Entry], gone: &Gone, unparked: &[i64]) -> Vec<bool> {
    let now = Timestamp::now();
    let same: Vec<bool> = manifests
        .iter()
        .map(|entry| stays_the_same(spi, entry, now))
        .collect();
    let changing = manifests.iter().zip(&same).filter(|&(_, same)| !same);
    let changing = changing.map(|(entry, _)| entry.name.clone());
    let removed = gone.manifests.iter().map(|(_, name)| name.clone());
    let names: Vec<String> = changing.chain(removed).collect();
    let mut ids: Vec<i64> = if gone.manifests.is_empty() {
        spi.query(ManifestLockNamed { names: arg(names) })
            .iter()
            .collect()
    } else {
        lock_to_remove(spi, names)
    };
    ids.extend(unparked);
    manifest_state::lock_for_outcome(spi, ids);
    same
}

/// Returns whether storing a manifest would change nothing: stores it and rolls back, so that no
/// lock stays. A manifest that cannot be stored by itself may depend on others of the document.
fn stays_the_same(spi: &Spi, entry: &Entry, now: Timestamp) -> bool {
    if find(spi, &entry.name).is_none() {
        return false;
    }
    let stored = kept_if(|| Ok((store_manifest(spi, entry, now)?, false)));
    stored.is_ok_and(|action| action.action == UNCHANGED)
}

fn apply_manifest(spi: &Spi, entry: &Entry, now: Timestamp) -> Result<Action> {
    kept_if(|| {
        let action = store_manifest(spi, entry, now)?;
        // A definition that stays the same is not written.
        let keep = action.action != UNCHANGED;
        Ok((action, keep))
    })
}

fn store_manifest(spi: &Spi, entry: &Entry, now: Timestamp) -> Result<Action> {
    pgrx::check_for_interrupts!();
    let about = |error: Error| error.about(&entry.name);
    let change = entry.change(spi, now).map_err(about)?;
    let (_, difference) = schedule(spi, change).map_err(about)?;
    Ok(compared(Kind::Manifest, entry.name.clone(), difference))
}

fn removed(kind: Kind, name: String) -> Action {
    Action {
        action: "removed",
        kind,
        name,
        detail: None,
    }
}

fn unchanged(kind: Kind, name: String) -> Action {
    Action {
        action: UNCHANGED,
        kind,
        name,
        detail: None,
    }
}

/// Removes manifests whose waiting jobs and definitions are locked.
fn prune_missing(spi: &Spi, gone: Vec<(i64, String)>, now: Timestamp) -> Result<Vec<Action>> {
    // They may depend on each other; remaining manifests must not depend on them.
    for (id, name) in &gone {
        dependency::replace(spi, *id, name, &[])?;
    }
    gone.into_iter()
        .map(|(id, name)| {
            remove(spi, id, &name, now)?;
            Ok(removed(Kind::Manifest, name))
        })
        .collect()
}

fn compared(kind: Kind, name: String, difference: Difference) -> Action {
    let (action, detail) = match difference {
        Difference::Created => ("created", None),
        Difference::Changed(changes) => ("changed", Some(changes)),
        Difference::None => (UNCHANGED, None),
    };
    Action {
        action,
        kind,
        name,
        detail,
    }
}

/// A manifest of the document.
struct Entry<'a> {
    name: String,
    depends_on: Option<Vec<String>>,
    object: Object<'a>,
    source: Option<&'a str>,
    caller: Caller,
}

impl<'a> Entry<'a> {
    fn read(value: &'a Value, source: Option<&'a str>, caller: Caller) -> Result<Self> {
        const KEYS: [&str; 28] = [
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
            "on_dead_letter",
            "sql",
            "run_as",
        ];
        let object =
            Object::new(value, "a manifest", &KEYS).map_err(about(Kind::Manifest, value))?;
        let name = object
            .new_name("name")?
            .ok_or_else(|| nameless("a manifest"))?;
        let depends_on = object
            .names("depends_on")
            .map_err(|error| error.about(&name))?;
        Ok(Self {
            name,
            depends_on,
            object,
            source,
            caller,
        })
    }

    fn change(&self, spi: &Spi, now: Timestamp) -> Result<Change> {
        let object = &self.object;
        let work = Work::of(
            object.new_name("task")?,
            object.json("input"),
            object.text("sql")?,
            object.name("run_as")?,
            self.caller,
        )?;
        let timezone = object.text("timezone")?;
        let zone = timezone.as_deref().unwrap_or("UTC");
        let change = Change {
            name: self.name.clone(),
            work,
            group: object.new_name("group_name")?,
            cron: object.text("cron")?,
            every: object.interval(spi, "every", 1)?,
            run_at: object.time(spi, "run_at", zone)?,
            depends_on: self.depends_on.clone(),
            depends_mode: one_of(
                object.text("depends_mode")?,
                "depends_mode",
                &["all", "any"],
            )?,
            dormant: object.boolean("dormant")?,
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
            starts_at: object.time(spi, "starts_at", zone)?,
            ends_at: object.time(spi, "ends_at", zone)?,
            enabled: object.boolean("enabled")?,
            on_dead_letter: one_of(
                object.text("on_dead_letter")?,
                "on_dead_letter",
                &ON_DEAD_LETTER,
            )?,
            timezone: timezone.clone(),
            replace: true,
            applied: true,
            source: self.source.map(str::to_owned),
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
                Error::invalid(format!("{kind} \"{name}\" appears twice in the document"))
                    .detail(format!("Each name must belong to a single {kind}."))
                    .hint("Rename or remove one of the two."),
            );
        }
    }
    Ok(())
}
