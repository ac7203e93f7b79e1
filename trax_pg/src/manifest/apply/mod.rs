//! Manifests, groups, rates and tasks as one document.
//!
//! Enters: a JSON object with `groups`, `manifests`, `rates` and `tasks`, whose members have the
//! names of the arguments of `trax.configure_group`, `trax.schedule`, `trax.configure_rate` and
//! `trax.configure_task`. Leaves: the created, changed, unchanged and removed objects. Holds:
//! applying the same document again changes nothing; an omitted member has its default, except that
//! a manifest which was disabled by hand stays disabled; only objects that an earlier apply created
//! are pruned.

mod entry;
mod order;
mod rates;
mod source;
mod tasks;

use super::definition::find;
use super::{lock_to_remove, lock_waiting, remove, schedule};
use crate::audit;
use crate::audit::Kind;
use crate::columns::HIGHEST_PRIORITY;
use crate::document::Object;
use crate::error::{Error, Result};
use crate::group;
use crate::manifest_state;
use crate::manifest_state::dependency;
use crate::rate;
use crate::server::call::sql_function;
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::json;
use crate::server::rights::{Caller, as_owner};
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::stored_settings::{Difference, StoredSettings};
use crate::task;
use entry::Entry;
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

/// Runs `store` and rolls it back if it changed nothing: nothing is written, and no lock stays.
fn kept_if_changed(store: impl FnOnce() -> Result<Action>) -> Result<Action> {
    kept_if(|| {
        let action = store()?;
        let keep = action.action != UNCHANGED;
        Ok((action, keep))
    })
}

/// The members of a document.
const LISTS: [&str; 4] = ["groups", "manifests", "rates", "tasks"];
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
            (Kind::Rate, "removed") => "drop",
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
    let parts = Parts::read(spi, document, source, caller)?;
    let Parts {
        groups,
        manifests,
        rates,
        tasks,
    } = &parts;
    let now = Timestamp::now();
    let mut actions = Vec::new();
    let order = in_order(manifests)?;
    // Before any definition, as in trax.schedule().
    dependency::lock_edges();
    if let Some(source) = source {
        refuse_others(spi, &parts, source)?;
    }
    let gone = if prune {
        Gone::find(spi, &parts, source)
    } else {
        Gone::default()
    };
    // A transaction that has queued jobs of these rates may wait for the locks that follow.
    rate::lock_use(&gone.rates);
    rates::apply(spi, rates, &mut actions)?;
    for group in groups {
        let known = group.require_rate(spi);
        known.map_err(|error| error.about("group", &group.name))?;
    }
    let changing = apply_groups(spi, groups, &gone, now, &mut actions);
    tasks::apply(spi, tasks, prune, source, now, &mut actions)?;
    let same = lock_changing(spi, manifests, &gone, &changing);
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
    rates::prune(spi, gone.rates, &mut actions)?;
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

/// Adds the name of an object, if it has one, to an error.
fn about(kind: Kind, value: &Value) -> impl Fn(Error) -> Error {
    let name = value.get("name").and_then(Value::as_str).map(str::to_owned);
    move |error| match &name {
        Some(name) => error.about(kind.name(), name),
        None => error,
    }
}

/// The contents of a document.
struct Parts<'a> {
    groups: Vec<group::Settings>,
    manifests: Vec<Entry<'a>>,
    rates: Vec<rate::Settings>,
    tasks: Vec<task::Settings>,
}

impl<'a> Parts<'a> {
    fn read(
        spi: &Spi,
        document: &'a Value,
        source: Option<&'a str>,
        caller: Caller,
    ) -> Result<Self> {
        let document = Object::new(document, "the document", &LISTS)?;
        Ok(Self {
            groups: objects(
                document.list("groups")?,
                Kind::Group,
                |value| settings(value, source),
                |group| &group.name,
            )?,
            manifests: objects(
                document.list("manifests")?,
                Kind::Manifest,
                |value| Entry::read(value, source, caller),
                |entry| &entry.name,
            )?,
            rates: objects(
                document.list("rates")?,
                Kind::Rate,
                |value| rates::settings(spi, value, source),
                |rate| &rate.name,
            )?,
            tasks: objects(
                document.list("tasks")?,
                Kind::Task,
                |value| tasks::settings(spi, value, source),
                |task| &task.name,
            )?,
        })
    }
}

/// Returns the objects of a list, each of another name.
fn objects<'a, T>(
    list: &'a [Value],
    kind: Kind,
    read: impl Fn(&'a Value) -> Result<T>,
    name: impl Fn(&T) -> &str,
) -> Result<Vec<T>> {
    let objects: Vec<T> = list
        .iter()
        .map(|value| read(value).map_err(about(kind, value)))
        .collect::<Result<_>>()?;
    refuse_repeated(kind.name(), objects.iter().map(name))?;
    Ok(objects)
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
    kept_if_changed(|| store_manifest(spi, entry, now))
}

fn store_manifest(spi: &Spi, entry: &Entry, now: Timestamp) -> Result<Action> {
    pgrx::check_for_interrupts!();
    let about = |error: Error| error.about("manifest", &entry.name);
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
