//! The limits of concurrency keys and of manifests.
//!
//! Jobs *share* a key or a manifest, which lets only some of them run at once. A job is *blocked*
//! while it waits outside its lane for the end of another that shares it (`waits_for`). Enters:
//! jobs that a claim cannot take for lack of room, which are blocked; jobs that have ended, for
//! which blocked ones are unblocked. Holds: when a job has ended, the next blocked job of each lane
//! returns to it, at once or with the next cycle; claims block any surplus again.

use super::{Counter, Held};
use crate::changes::Claimable;
use crate::columns::{Group, Waiting};
use crate::memory::Bound;
use crate::memory::left::{Left, Name};
use crate::server::lock::{Lock, Mode};
use crate::server::running::Running;
use crate::server::spi::{Rows, Spi, arg, row, statement};
use crate::server::table::{Key, Table, Updater, View};
use crate::{changes, wake};
use pgrx::pg_sys;
use std::collections::BTreeMap;

statement!(
    KeyUnblock, "limit/unblock.sql" with { reason: "'key'", shared: "concurrency_key" },
    { shared: TEXTOID, at_most: INT8OID } -> Unblocked
);
statement!(KeyUnblockGroup, "limit/key_unblock_group.sql", { group: TEXTOID } -> Claimable);
statement!(ManifestConcurrency, "limit/manifest_concurrency.sql", { manifest_id: INT8OID } -> i32);
statement!(
    ManifestUnblock, "limit/unblock.sql" with { reason: "'manifest'", shared: "manifest_id" },
    { shared: INT8OID, at_most: INT8OID } -> Unblocked
);
statement!(UnblockJobs, "limit/unblock_jobs.sql", { job_ids: INT8ARRAYOID } -> Unblocked);
row! {
    /// A blocked job that a statement has unblocked, or has found locked.
    struct Unblocked {
        lane_id: i64,
        priority: i16,
        job_id: i64,
        is_unblocked: bool,
    }
}

/// A concurrency key or a manifest, which jobs share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shared {
    /// A concurrency key.
    Key(String),
    Manifest(i64),
}

impl Shared {
    /// Returns the key and the manifest of a row, as far as it has them.
    pub(crate) fn of(key: Option<String>, manifest_id: Option<i64>) -> impl Iterator<Item = Self> {
        let manifest = manifest_id.map(Self::Manifest);
        key.map(Self::Key).into_iter().chain(manifest)
    }

    /// Returns the value of `waits_for` of a job that waits behind it.
    pub(crate) fn waits_for(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Manifest(_) => "manifest",
        }
    }

    fn lock(&self) -> Lock<'_> {
        match self {
            Self::Key(key) => Lock::Key(key),
            Self::Manifest(id) => Lock::Manifest(*id),
        }
    }

    fn bound(&self) -> Bound {
        match self {
            Self::Key(key) => Bound::first_lease("key", key),
            Self::Manifest(id) => Bound::first_lease("manifest", &id.to_string()),
        }
    }

    /// Returns the record that jobs of it have ended; `None` for a name that is too long.
    fn left(&self) -> Option<Left> {
        match self {
            Self::Key(key) => Name::of(key).map(Left::Key),
            Self::Manifest(id) => Some(Left::Manifest(*id)),
        }
    }

    /// Lowers the bound to a job that shares it and is being claimed.
    pub(crate) fn lower_bound(&self, job_id: i64) {
        self.bound().lower(job_id);
    }

    /// Releases its lock, under which a claim has taken and blocked no job.
    pub(crate) fn unlock(&self) {
        self.lock().give_back(Mode::Alone);
    }
}

/// Returns the running jobs of `shared`. The caller has its lock.
fn count(counter: &Counter, shared: &Shared) -> Held {
    let bound = shared.bound();
    match shared {
        Shared::Key(key) => {
            let what = |from| [Key::equals_text(1, key), Key::at_least(2, from)];
            Counter::count(&counter.by_key, bound, what, i64::MAX)
        }
        Shared::Manifest(id) => {
            let what = |from| [Key::equals(1, *id), Key::at_least(2, from)];
            Counter::count(&counter.by_manifest, bound, what, i64::MAX)
        }
    }
}

/// Locks `shared` and returns its running jobs. The result holds until the transaction ends; `None`
/// if another transaction has the lock.
pub(crate) fn held(counter: &Counter, shared: &Shared) -> Option<Held> {
    let is_free = shared.lock().take_if_free(Mode::Alone);
    is_free.then(|| count(counter, shared))
}

/// Returns the transactions that keep claims from jobs of `shared`: those with its lock, or those
/// that are ending its jobs. Each may make room when it ends. Empty if not all are known.
pub(crate) fn holders_of(counter: &Counter, shared: &Shared) -> Vec<Running> {
    let holders = shared.lock().holders();
    if !holders.is_empty() {
        return holders;
    }
    let (index, what) = match shared {
        Shared::Key(key) => (&counter.by_key, Key::equals_text(1, key)),
        Shared::Manifest(id) => (&counter.by_manifest, Key::equals(1, *id)),
    };
    let view = View::latest();
    let scan = index.scan(&view, 1);
    scan.seek([what]);
    let mut ending = Some(Vec::new());
    while ending.is_some() && scan.next() {
        if scan.is_changing() {
            ending = ending.zip(scan.changed_by()).map(|(mut all, by)| {
                all.push(by);
                all
            });
        }
    }
    scan.end();
    view.end();
    ending.unwrap_or_default()
}

/// Returns how many jobs of `shared` may run at once; for a key, by the setting of the group.
pub(crate) fn allowed(spi: &Spi, counter: &Counter, shared: &Shared, group: &str) -> i64 {
    match shared {
        Shared::Key(_) => counter
            .group(group)
            .and_then(|row| row.get::<i32>(Group::MaxPerKey))
            .map_or(1, i64::from),
        // Jobs outlive a manifest that is unscheduled.
        Shared::Manifest(id) => spi
            .query_latest(ManifestConcurrency {
                manifest_id: arg(*id),
            })
            .first()
            .map_or(i64::MAX, i64::from),
    }
}

/// A row that this transaction has locked, and its new value of `waits_for`.
pub(crate) struct Blocked {
    pub(crate) tid: pg_sys::ItemPointerData,
    pub(crate) waits_for: &'static str,
}

/// Takes rows out of their lanes whose key or manifest has no room. The caller has locked the rows
/// and the keys and manifests.
pub(crate) fn block(rows: &[Blocked]) {
    changes::taken();
    let queue = Table::open(Waiting::TABLE, Waiting::ALL);
    let view = View::of_transaction();
    let mut updater = Updater::begin(&queue);
    for row in rows {
        let reason = [(Waiting::WaitsFor, arg(row.waits_for))];
        updater.update_if_free(row.tid, &view, reason);
    }
    updater.end();
    view.end();
    queue.close();
}

/// Returns how many jobs have ended, by key and manifest.
fn counted(ended: impl Iterator<Item = Shared>) -> BTreeMap<Shared, i64> {
    let mut counts: BTreeMap<Shared, i64> = BTreeMap::new();
    for shared in ended {
        *counts.entry(shared).or_default() += 1;
    }
    counts
}

/// Unblocks the next jobs after jobs that share their key or manifest have ended: in each lane as
/// many as have ended, because the next job of one lane may be held back by its group, or no worker
/// may claim it. Claims block the surplus again.
///
/// A claim that has counted the ended leases may be blocking jobs now, under the lock; this
/// function waits for the lock, and then sees these jobs. The lock is released at once: later
/// claims see that the leases are being deleted, and block no job behind them. If `may_wait` is
/// false, locked keys and manifests are left to the next cycle (`memory/left.rs`), because a cycle
/// must not wait for a worker's open transaction. So is a lane in which another transaction has
/// locked the rows of all such jobs.
pub(crate) fn free(spi: &Spi, ended: impl Iterator<Item = Shared>, may_wait: bool) {
    for (shared, count) in counted(ended) {
        // A claim that saw the lease being deleted has left such jobs in their lanes.
        wake::mark(wake::WORK);
        let lock = shared.lock();
        if may_wait {
            lock.take(Mode::Share);
        } else if !lock.take_if_free(Mode::Share) {
            if let Some(left) = shared.left() {
                changes::left(left, count);
            }
            continue;
        }
        unblock(spi, &shared, Some(count));
        lock.give_back(Mode::Share);
    }
}

/// Unblocks the jobs that earlier transactions have left blocked.
pub(crate) fn free_left(spi: &Spi, left: &[(Left, i64)]) {
    let ended = left.iter().filter_map(|&(left, count)| {
        let shared = match left {
            Left::Key(name) => Shared::Key(name.text()),
            Left::Manifest(id) => Shared::Manifest(id),
            Left::Job(_) | Left::Overlap(_) => return None,
        };
        Some(std::iter::repeat_n(shared, count as usize))
    });
    free(spi, ended.flatten(), false);
    let jobs = left.iter().filter_map(|&(left, _)| match left {
        Left::Job(job_id) => Some(job_id),
        _ => None,
    });
    let job_ids: Vec<i64> = jobs.collect();
    if !job_ids.is_empty() {
        let job_ids = arg(job_ids);
        unblocked(&spi.change_latest(UnblockJobs { job_ids }));
    }
}

/// Unblocks the next jobs after waiting jobs have ended, because one of these may have been the job
/// that was unblocked last. This needs no lock: a claim blocks jobs behind leases only.
pub(crate) fn let_next_in(spi: &Spi, ended: impl Iterator<Item = Shared>) {
    for (shared, count) in counted(ended) {
        unblock(spi, &shared, Some(count));
    }
}

fn unblock(spi: &Spi, shared: &Shared, at_most: Option<i64>) {
    let at_most = at_most.and_then(arg);
    let has_left = match shared {
        Shared::Key(key) => unblocked(&spi.change_latest(KeyUnblock {
            shared: arg(key.as_str()),
            at_most,
        })),
        Shared::Manifest(id) => unblocked(&spi.change_latest(ManifestUnblock {
            shared: arg(*id),
            at_most,
        })),
    };
    if has_left {
        wake::mark(wake::DUE);
    }
}

/// Leaves the jobs that are locked to the next cycle; returns whether there are any.
fn unblocked(rows: &Rows<Unblocked>) -> bool {
    let mut has_left = false;
    for row in rows.iter() {
        if row.is_unblocked {
            changes::claimable(row.lane_id, row.priority, row.job_id);
        } else {
            changes::left(Left::Job(row.job_id), 1);
            has_left = true;
        }
    }
    has_left
}

/// Unblocks all jobs of a manifest, because its limit has changed.
pub(crate) fn unblock_manifest(spi: &Spi, manifest_id: i64) {
    unblock(spi, &Shared::Manifest(manifest_id), None);
}

/// Unblocks all jobs of a group behind keys, because the limit of its keys has changed.
pub(crate) fn unblock_group(spi: &Spi, group: &str) {
    changes::rows_claimable(&spi.change_latest(KeyUnblockGroup { group: arg(group) }));
}
