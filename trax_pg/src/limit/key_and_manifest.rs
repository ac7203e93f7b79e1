//! The limits of concurrency keys and of manifests: what jobs share.

use super::{Counter, Held};
use crate::changes::Claimable;
use crate::columns::Group;
use crate::memory::Bound;
use crate::server::lock::{Lock, Mode};
use crate::server::running::Running;
use crate::server::spi::{Spi, arg, array_arg, statement};
use crate::server::table::{Key, View};
use crate::{changes, wake};
use pgrx::pg_sys;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

statement!(KeyBlock, "limit/key_block.sql", { tids: TIDARRAYOID, waits_for: TEXTARRAYOID });
statement!(
    KeyUnblock, "limit/unblock.sql" with { reason: "'key'", shared: "concurrency_key" },
    { shared: TEXTOID, at_most: INT8OID } -> Claimable
);
statement!(KeyUnblockGroup, "limit/key_unblock_group.sql", { group: TEXTOID } -> Claimable);
statement!(ManifestConcurrency, "limit/manifest_concurrency.sql", { manifest_id: INT8OID } -> i32);
statement!(
    ManifestUnblock, "limit/unblock.sql" with { reason: "'manifest'", shared: "manifest_id" },
    { shared: INT8OID, at_most: INT8OID } -> Claimable
);

/// What jobs share that lets only so many of them run at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shared {
    /// A concurrency key.
    Key(String),
    Manifest(i64),
}

impl Shared {
    /// Returns which of the two a row has.
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

    /// Counts a job that shares it and is being claimed.
    pub(crate) fn takes(&self, job_id: i64) {
        self.bound().lower(job_id);
    }

    /// Lets it go, of which a claim has taken and blocked nothing.
    pub(crate) fn unlock(&self) {
        self.lock().give_back(Mode::Alone);
    }
}

/// Returns how many jobs run and share this. The caller has its lock.
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

/// Returns how many jobs run and share this. The result holds until the transaction ends; `None`
/// when another transaction is claiming such jobs.
pub(crate) fn held(counter: &Counter, shared: &Shared) -> Option<Held> {
    let is_free = shared.lock().take_if_free(Mode::Alone);
    is_free.then(|| count(counter, shared))
}

/// Returns the transactions because of which a claim leaves jobs alone that share this: each may
/// make room for them when it ends. Empty when they are not known.
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

/// Returns how many jobs that share this may run at once, in a group.
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

/// A row, locked by this transaction, and what it waits behind.
pub(crate) struct Blocked {
    pub(crate) tid: pg_sys::ItemPointerData,
    pub(crate) waits_for: &'static str,
}

/// Takes rows out of their lanes that share what has no room; the caller has locked both.
pub(crate) fn block(spi: &Spi, rows: &[Blocked]) {
    changes::taken();
    let tids: Vec<Option<pg_sys::Datum>> = rows
        .iter()
        .map(|row| Some(pg_sys::Datum::from(&raw const row.tid)))
        .collect();
    let reasons: Vec<Option<pg_sys::Datum>> = rows.iter().map(|row| arg(row.waits_for)).collect();
    spi.execute(KeyBlock {
        tids: array_arg(pg_sys::TIDOID, &tids),
        waits_for: array_arg(pg_sys::TEXTOID, &reasons),
    });
}

/// Returns how many have ended of each.
fn counted(ended: impl Iterator<Item = Shared>) -> BTreeMap<Shared, i64> {
    let mut counts: BTreeMap<Shared, i64> = BTreeMap::new();
    for shared in ended {
        *counts.entry(shared).or_default() += 1;
    }
    counts
}

/// What jobs share that this backend's cycle has ended, and that a claim had locked.
static LEFT: Mutex<BTreeMap<Shared, i64>> = Mutex::new(BTreeMap::new());

/// Lets the next jobs in after leases of jobs have ended with which they share something, as many
/// as have ended of each lane: the next of one lane may be held back by its group, or wanted by
/// nobody; claims sort out what is too many.
///
/// A claim that has counted these leases may be blocking jobs behind them. It holds the lock: we
/// wait for it, so that what it has blocked is seen. The lock is not kept: later claims see that
/// the leases are being deleted, and block nothing behind them. With `patient` false what is locked
/// is left to the next cycle: it must not wait for a worker's open transaction.
pub(crate) fn free(spi: &Spi, ended: impl Iterator<Item = Shared>, patient: bool) {
    for (shared, count) in counted(ended) {
        // A claim that saw the end coming has left such jobs where they are.
        wake::mark(wake::WORK);
        let lock = shared.lock();
        if patient {
            lock.take(Mode::Share);
        } else if !lock.take_if_free(Mode::Share) {
            let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
            *left.entry(shared).or_default() += count;
            continue;
        }
        unblock(spi, &shared, Some(count));
        lock.give_back(Mode::Share);
    }
}

/// Lets the next jobs in behind what earlier cycles of this backend have left. If that fails they
/// are let in by the sweep of the minute.
pub(crate) fn free_left(spi: &Spi) {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    let ended = left
        .into_iter()
        .flat_map(|(shared, count)| std::iter::repeat_n(shared, count as usize));
    free(spi, ended, false);
}

/// Returns whether anything is left to the next cycle.
pub(crate) fn has_left() -> bool {
    !LEFT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_empty()
}

/// Lets the next jobs in after jobs that waited have ended: one of them may have been the one that
/// was let in. A claim blocks behind leases only, so there is none to be waited for.
pub(crate) fn hand_on(spi: &Spi, ended: impl Iterator<Item = Shared>) {
    for (shared, count) in counted(ended) {
        unblock(spi, &shared, Some(count));
    }
}

fn unblock(spi: &Spi, shared: &Shared, at_most: Option<i64>) {
    let at_most = at_most.and_then(arg);
    let rows = match shared {
        Shared::Key(key) => spi.change_latest(KeyUnblock {
            shared: arg(key.as_str()),
            at_most,
        }),
        Shared::Manifest(id) => spi.change_latest(ManifestUnblock {
            shared: arg(*id),
            at_most,
        }),
    };
    changes::rows_claimable(&rows);
}

/// Lets all blocked jobs of a manifest in: the number that may run has changed.
pub(crate) fn unblock_manifest(spi: &Spi, manifest_id: i64) {
    unblock(spi, &Shared::Manifest(manifest_id), None);
}

/// Lets all blocked jobs of a group in: the number that may run has changed.
pub(crate) fn unblock_group(spi: &Spi, group: &str) {
    changes::rows_claimable(&spi.change_latest(KeyUnblockGroup { group: arg(group) }));
}
