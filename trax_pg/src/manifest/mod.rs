//! Manifests: stored definitions of jobs and of when they run.
//!
//! Enters: calls of `trax.schedule` and related functions. Leaves: a definition, and in
//! `trax.manifest_state` the time of its next run; a job when it is triggered by hand. Holds: a
//! stored definition can be evaluated; an omitted argument keeps its value; a schedule that did not
//! change keeps its next run. A change counts from now on: waiting and running jobs keep the values
//! that they were queued with, and the new schedule makes up for no occurrence or run of the old
//! one.

mod apply;
mod change;
mod definition;
mod next_run;
mod preview;
mod work;
pub(crate) mod zone_update;

use crate::access_scope;
use crate::access_scope::Scope;
use crate::audit;
use crate::audit::Kind;
use crate::columns::HIGHEST_PRIORITY;
use crate::error::{Error, Result};
use crate::manifest_state;
use crate::manifest_state::dependency;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::quote::literal;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::stored_settings::Difference;
use crate::work_queue;
use crate::work_queue::NewJob;
use crate::{group, limit, outcome, setting};
use change::Change;
use definition::{find, find_for_job, must_lock};
use pgrx::pg_sys;

statement!(ManifestShare, "manifest/share.sql", { name: TEXTOID });
statement!(
    ManifestSwitch, "manifest/switch.sql",
    { manifest_id: INT8OID, enabled: BOOLOID, now: TIMESTAMPTZOID }
);
statement!(ManifestRemove, "manifest/remove.sql", { manifest_id: INT8OID });
statement!(ManifestLockToRemove, "manifest/lock_to_remove.sql", { names: TEXTARRAYOID } -> i64);
statement!(ManifestWaitingJobs, "manifest/waiting_jobs.sql", { manifest_ids: INT8ARRAYOID } -> i64);
statement!(ManifestLockFree, "manifest/lock_free.sql", { manifest_id: INT8OID } -> i64);
statement!(GroupManifests, "manifest/group_manifests.sql", { group: TEXTOID } -> String);

sql_function!(trax_schedule, pg_finfo_trax_schedule, |call| {
    as_owner(call, |caller| {
        let change = Change::from_call(call, caller)?;
        let id = spi::connected(|spi| {
            let name = change.name.clone();
            let (id, difference) = schedule(spi, change)?;
            audit::record_change(spi, "schedule", Kind::Manifest, &name, &difference);
            Ok(id)
        })?;
        Ok(call.value(id))
    })
});

sql_function!(trax_unschedule, pg_finfo_trax_unschedule, |call| {
    let name = call.name(0, "name")?;
    spi::connected(|spi| {
        unschedule(spi, &name, Timestamp::now())?;
        audit::record(spi, "unschedule", Kind::Manifest, &name, None);
        Ok(())
    })?;
    Ok(call.null())
});

sql_function!(
    trax_enable_manifest,
    pg_finfo_trax_enable_manifest,
    |call| {
        let name = call.name(0, "name")?;
        spi::connected(|spi| switch(spi, &name, true, Timestamp::now()))?;
        Ok(call.null())
    }
);

sql_function!(
    trax_disable_manifest,
    pg_finfo_trax_disable_manifest,
    |call| {
        let name = call.name(0, "name")?;
        spi::connected(|spi| switch(spi, &name, false, Timestamp::now()))?;
        Ok(call.null())
    }
);

sql_function!(trax_trigger, pg_finfo_trax_trigger, |call| {
    as_owner(call, |caller| {
        let name = call.name(0, "name")?;
        let input = call.datum(1);
        input.map_or(Ok(()), |input| work_queue::check_size("input", input))?;
        let delay = call.optional_not_negative(2, "delay")?.unwrap_or(0);
        let id = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            trigger(spi, &scope, &name, input, delay, Timestamp::now())
        })?;
        Ok(call.value(id))
    })
});

sql_function!(trax_trigger_group, pg_finfo_trax_trigger_group, |call| {
    let name = call.name(0, "group_name")?;
    let count = spi::connected(|spi| trigger_group(spi, &name, Timestamp::now()))?;
    Ok(call.value(count))
});

sql_function!(trax_activate, pg_finfo_trax_activate, |call| {
    as_owner(call, |caller| {
        let name = call.name(0, "name")?;
        let input = call.datum(1);
        input.map_or(Ok(()), |input| work_queue::check_size("input", input))?;
        let id = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            activate(spi, &scope, &name, input, Timestamp::now())
        })?;
        Ok(call.value(id))
    })
});

sql_function!(
    trax_cancel_manifest,
    pg_finfo_trax_cancel_manifest,
    |call| {
        let name = call.name(0, "name")?;
        let count = spi::connected(|spi| {
            let definition = find(spi, &name).ok_or_else(|| Error::unknown_manifest(&name))?;
            let jobs = outcome::jobs_of_manifest(spi, definition.id);
            let count = outcome::cancel_trees(spi, &jobs, Timestamp::now());
            let note = format!("{count} jobs");
            audit::record(spi, "cancel", Kind::Manifest, &name, Some(&note));
            Ok(count as i64)
        })?;
        Ok(call.value(count))
    }
);

/// Creates or changes a manifest: locks and reads the stored one, decides, and writes its
/// definition and its state. Returns its id, and the difference.
fn schedule(spi: &Spi, mut change: Change) -> Result<(i64, Difference)> {
    let before = change.lock_stored(spi);
    change.complete(before.as_ref())?;
    let (after, difference) = change.save(spi, before.as_ref())?;
    let before = before.map(|before| before.definition);
    let rearm = next_run::after_change(spi, before.as_ref(), &after, change.now)?;
    manifest_state::rearm(spi, after.id, &after.group, rearm, change.now);
    if change.max_concurrency.is_some() {
        limit::unblock_manifest(spi, after.id);
    }
    Ok((after.id, difference))
}

/// Deletes the definition and cancels waiting jobs; running jobs continue, and history stays.
fn unschedule(spi: &Spi, name: &str, now: Timestamp) -> Result<()> {
    // Nobody makes another manifest depend on it meanwhile.
    dependency::lock_edges();
    // Waiting jobs are locked first, as outcomes do: a job that is being claimed may complete in
    // the same transaction.
    let found = find(spi, name).ok_or_else(|| Error::unknown_manifest(name))?;
    lock_waiting(spi, vec![found.id]);
    lock_to_remove(spi, vec![name.to_owned()]);
    let definition = must_lock(spi, name)?;
    remove(spi, definition.id, name, now)
}

/// Locks manifests of which some are about to be removed: no other session can trigger them now.
/// Returns their ids.
fn lock_to_remove(spi: &Spi, names: Vec<String>) -> Vec<i64> {
    spi.query(ManifestLockToRemove { names: arg(names) })
        .iter()
        .collect()
}

/// Locks the waiting jobs of manifests, and their descendants.
fn lock_waiting(spi: &Spi, ids: Vec<i64>) {
    if !ids.is_empty() {
        let rows = spi.query(ManifestWaitingJobs {
            manifest_ids: arg(ids),
        });
        outcome::lock_trees(spi, &rows.iter().collect::<Vec<i64>>());
    }
}

/// Deletes a manifest whose waiting jobs and whose definition are locked.
fn remove(spi: &Spi, id: i64, name: &str, now: Timestamp) -> Result<()> {
    dependency::refuse_with_dependents(spi, id, name)?;
    // Waits for a cycle that is about to queue this manifest; after that no other can. The state is
    // locked before the edges.
    manifest_state::lock_for_outcome(spi, vec![id]);
    spi.execute(ManifestRemove {
        manifest_id: arg(id),
    });
    // The jobs that were locked before, and those that the cycle queued. A row that another
    // transaction has locked is being claimed or cancelled; waiting for it here, after the state,
    // would violate the order of locks.
    let rows = spi.query(ManifestLockFree {
        manifest_id: arg(id),
    });
    outcome::cancel_trees(spi, &rows.iter().collect::<Vec<i64>>(), now);
    Ok(())
}

/// Enables or disables a manifest.
fn switch(spi: &Spi, name: &str, enabled: bool, now: Timestamp) -> Result<()> {
    let mut definition = must_lock(spi, name)?;
    if definition.enabled == enabled {
        return Ok(());
    }
    spi.execute(ManifestSwitch {
        manifest_id: arg(definition.id),
        enabled: arg(enabled),
        now: arg(now),
    });
    let action = if enabled { "enable" } else { "disable" };
    audit::record(spi, action, Kind::Manifest, name, None);
    definition.enabled = enabled;
    let rearm = next_run::after_switch(spi, &definition, now)?;
    manifest_state::rearm(spi, definition.id, &definition.group, rearm, now);
    Ok(())
}

/// Queues a job of a manifest by hand; its schedule does not change, and only the queue can delay
/// the job.
fn trigger(
    spi: &Spi,
    scope: &Scope,
    name: &str,
    input: Option<pg_sys::Datum>,
    delay: i64,
    now: Timestamp,
) -> Result<i64> {
    spi.query(ManifestShare { name: arg(name) });
    let (definition, defaults) =
        find_for_job(spi, name).ok_or_else(|| Error::unknown_manifest(name))?;
    scope.require_of(&definition.task, &definition.group, || {
        format!("manifest \"{name}\"")
    })?;
    definition.refuse_input(input)?;
    let job = NewJob {
        run_at: now.plus(delay),
        ..definition.job(&defaults, now)
    };
    let job_id = work_queue::enqueue(spi, &job, input.or(defaults.input));
    let note = format!("as job {job_id}");
    audit::record(spi, "trigger", Kind::Manifest, name, Some(&note));
    Ok(job_id)
}

/// Triggers the enabled manifests of a group, except dormant ones; returns how many.
fn trigger_group(spi: &Spi, name: &str, now: Timestamp) -> Result<i64> {
    group::require_known(spi, name)?;
    let rows = spi.query(GroupManifests { group: arg(name) });
    let mut names: Vec<String> = rows.iter().collect();
    names.sort_unstable();
    for name in &names {
        trigger(spi, &Scope::default(), name, None, 0, now)?;
    }
    Ok(names.len() as i64)
}

/// Queues a dormant dependent; only while one of its declared parents is being executed.
fn activate(
    spi: &Spi,
    scope: &Scope,
    name: &str,
    input: Option<pg_sys::Datum>,
    now: Timestamp,
) -> Result<i64> {
    spi.query(ManifestShare { name: arg(name) });
    let (definition, defaults) =
        find_for_job(spi, name).ok_or_else(|| Error::unknown_manifest(name))?;
    scope.require_of(&definition.task, &definition.group, || {
        format!("manifest \"{name}\"")
    })?;
    definition.refuse_input(input)?;
    definition.refuse_unless_dormant()?;
    if !definition.enabled {
        return Err(
            Error::wrong_state(format!("manifest \"{name}\" is disabled"))
                .detail("A disabled manifest cannot be activated.")
                .hint(format!(
                    "Type: select trax.enable_manifest({})",
                    literal(name)
                )),
        );
    }
    if !dependency::has_running_parent(spi, definition.id) {
        return Err(Error::wrong_state(format!("no parent of manifest \"{name}\" is running"))
            .detail(format!("Its parents are: {}.", definition.parents.join(", ")))
            .hint("Call trax.activate() from a job of one of its parents, before that job is completed."));
    }
    let boosted = definition.priority + setting::dependent_priority_boost();
    let job = NewJob {
        priority: boosted.min(HIGHEST_PRIORITY),
        ..definition.job(&defaults, now)
    };
    Ok(work_queue::enqueue(spi, &job, input.or(defaults.input)))
}
