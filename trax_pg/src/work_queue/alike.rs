//! Many jobs of any kinds at once.

use super::{
    NewJob, OnDuplicate, Placed, add, enqueue_unique, next_ids, overflow, require_keeper, wanted,
};
use crate::access_scope::Scope;
use crate::columns::Waiting;
use crate::error::Result;
use crate::job_graph;
use crate::server::clock::Timestamp;
use crate::server::spi::Spi;
use crate::server::table::{Inserter, Table};
use crate::unique_key::{KeyTaken, Wanted};
use crate::{task, unique_key};
use pgrx::pg_sys;
use std::collections::{HashMap, HashSet};

/// Jobs that share everything but their inputs; with a unique key only one.
pub(crate) struct Alike {
    pub(crate) job: NewJob,
    pub(crate) inputs: Vec<Option<pg_sys::Datum>>,
}

/// Queues jobs of any kinds in their order, and adds them to their batches. A job whose unique key
/// is alive, or is that of an earlier job, is left out, or replaces that job. Replacing jobs come
/// last, in an order of their keys that concurrent transactions share.
pub(crate) fn enqueue_each(spi: &Spi, scope: &Scope, jobs: &[Alike]) -> Result<()> {
    overflow::lock_all(jobs.iter().map(|alike| &alike.job));
    let batches = jobs.iter().filter_map(|alike| alike.job.batch);
    job_graph::keep_all_open(spi, scope, batches)?;
    let count = jobs.iter().map(|alike| alike.inputs.len()).sum();
    let ids = next_ids(count);
    let mut left = ids.as_slice();
    let jobs: Vec<(&Alike, &[i64])> = jobs
        .iter()
        .map(|alike| {
            let own;
            (own, left) = left.split_at(alike.inputs.len());
            (alike, own)
        })
        .collect();
    let (jobs, mut replacing): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .partition(|(alike, _)| alike.job.on_duplicate == OnDuplicate::Keep);
    replacing.sort_by(|(one, _), (other, _)| one.job.unique_key.cmp(&other.job.unique_key));
    let taken = take_unique_keys(spi, &jobs);
    require_keepers(spi, scope, &jobs, &taken)?;
    let jobs: Vec<_> = jobs
        .into_iter()
        .filter(|(alike, own)| alike.job.unique_key.is_none() || taken.contains(&own[0]))
        .collect();
    let jobs: Vec<_> = jobs
        .into_iter()
        .map(|(alike, own)| admitted(spi, alike, own))
        .collect();
    insert_each(
        jobs.iter()
            .map(|(alike, own, inputs)| (&alike.job, *own, *inputs)),
        count,
    );
    for (alike, own, _) in jobs {
        add_to_batch(&alike.job, own);
    }
    for (Alike { job, inputs }, own) in replacing {
        let key = job
            .unique_key
            .as_deref()
            .expect("a replacing job has a key");
        match enqueue_unique(spi, scope, job, key, Some(own[0]), inputs[0]) {
            Ok(Placed::Queued(id)) => add_to_batch(job, &[id]),
            // With a key that stays with another job nothing is queued.
            Ok(_) => {}
            Err(KeyTaken { job_id, .. }) => require_keeper(spi, scope, job_id)?,
        }
    }
    Ok(())
}

/// Returns an error for a limited role unless the jobs that keep the keys are within its limits:
/// nothing is left out of which the role may not learn.
fn require_keepers(
    spi: &Spi,
    scope: &Scope,
    jobs: &[(&Alike, &[i64])],
    taken: &HashSet<i64>,
) -> Result<()> {
    if !scope.is_limited() {
        return Ok(());
    }
    for (alike, own) in jobs {
        if let Some(key) = alike.job.unique_key.as_deref()
            && !taken.contains(&own[0])
            && let Some(found) = unique_key::find(spi, key, alike.job.now)
            && !taken.contains(&found.job_id)
        {
            require_keeper(spi, scope, found.job_id)?;
        }
    }
    Ok(())
}

fn add_to_batch(job: &NewJob, ids: &[i64]) {
    if let Some(batch) = job.batch {
        job_graph::add_to_batch(batch, ids);
    }
}

/// Adds a row for each id and input of jobs of any kinds, which no full group drops; `count` is
/// about their number.
pub(crate) fn insert_each<'job>(
    jobs: impl Iterator<Item = (&'job NewJob, &'job [i64], &'job [Option<pg_sys::Datum>])>,
    count: usize,
) {
    let (mut lanes, tasks) = (HashMap::new(), task::all());
    let table = Table::open(Waiting::TABLE, Waiting::ALL);
    let mut rows = Inserter::begin(&table, count);
    for (job, ids, inputs) in jobs {
        let lane = *lanes.entry(job.names()).or_insert_with(|| job.lane());
        add(&mut rows, job, tasks.of(&job.task), lane, ids, inputs);
    }
    rows.end();
    table.close();
}

/// Returns those of the jobs that their group does not drop, with their inputs.
fn admitted<'a>(
    spi: &Spi,
    alike: &'a Alike,
    own: &'a [i64],
) -> (&'a Alike, &'a [i64], &'a [Option<pg_sys::Datum>]) {
    let queued = overflow::admit(&alike.job, own, &alike.inputs);
    if queued.is_empty()
        && let (Some(key), Some(id)) = (&alike.job.unique_key, own.first())
    {
        unique_key::give_back(spi, key, *id);
    }
    (alike, &own[queued.clone()], &alike.inputs[queued])
}

/// Returns the jobs that now have the unique keys that they want.
fn take_unique_keys(spi: &Spi, jobs: &[(&Alike, &[i64])]) -> HashSet<i64> {
    let keyed = jobs.iter().filter_map(|(alike, own)| {
        let key = alike.job.unique_key.as_deref()?;
        Some((alike.job.now, wanted(&alike.job, key, own[0])))
    });
    let (times, keys): (Vec<Timestamp>, Vec<Wanted>) = keyed.unzip();
    match times.last() {
        Some(&now) => unique_key::take_each(spi, &keys, now),
        None => HashSet::new(),
    }
}
