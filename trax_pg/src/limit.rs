//! Limits: how many jobs may run at once, of the database, of a group, of a concurrency key.
//!
//! A lease is the token: it is there exactly while the job runs, it goes with the outcome or with the reaper, and it
//! crashes with the transaction. A claim counts the leases that have committed while it holds a lock on what is limited,
//! which it keeps until it commits; so limits are exact under any number of claimers, and changing one is changing a
//! number: growing counts at once, shrinking lets nothing new in until enough have ended.
//!
//! Departs from rows of tokens: a row for each slot would be written twice for each job and retired when a limit
//! shrinks. The price is that claims of one limited group follow each other, commit by commit; one that finds the lock
//! taken steps over the group.
//!
//! Nothing scans blocked work: the lanes of a group that is full are not read. A job behind its key is taken out of its
//! lane by the first claim that meets it (`waits_for = 'key'`), and the outcome that frees the key lets the next one in.

use crate::group::{self, Group};
use crate::lease::Leased;
use crate::spi::{Spi, arg, statement};
use crate::table::{Index, Key, Row, Table, View};
use crate::{hint, setting, wake, work_queue};
use pgrx::pg_sys;
use std::collections::BTreeMap;

/// First keys of the advisory locks on the database's limit and on concurrency keys.
const DATABASE_CLASS: i32 = group::LOCK_CLASS + 3;
const KEY_CLASS: i32 = group::LOCK_CLASS + 4;
/// Most keys that one sweep looks at.
const SWEEP_AT_MOST: i64 = 1000;

statement!(LEASE_COUNT, "lease_count.sql", INT8OID);
statement!(KEY_BLOCK, "key_block.sql", TIDARRAYOID);
statement!(KEY_UNBLOCK, "key_unblock.sql", TEXTOID, INT8OID);
statement!(KEY_UNBLOCK_GROUP, "key_unblock_group.sql", TEXTOID);
statement!(KEY_SWEEP, "key_sweep.sql", INT8OID);

/// How many more jobs a claim may take of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Unlimited,
    For(i64),
    /// Another transaction is claiming of it: it is left alone.
    Busy,
}

impl Room {
    pub(crate) fn is_none(self) -> bool {
        match self {
            Self::Unlimited => false,
            Self::For(left) => left <= 0,
            Self::Busy => true,
        }
    }

    pub(crate) fn take(&mut self) {
        if let Self::For(left) = self {
            *left -= 1;
        }
    }
}

/// How many more jobs may run in the whole database. What it says holds until the transaction ends.
pub(crate) fn room_in_database(spi: &Spi) -> Room {
    let Some(limit) = setting::max_active_jobs() else {
        return Room::Unlimited;
    };
    if !group::advisory_lock_in(DATABASE_CLASS, 0, pg_sys::ExclusiveLock as i32, true) {
        return Room::Busy;
    }
    wake::may_be_full();
    let limit = limit as i64;
    let rows = spi.query_latest(&LEASE_COUNT, &[arg(limit)]);
    Room::For(
        limit
            - rows
                .first()
                .expect("an aggregate gives one row")
                .must::<i64>(1),
    )
}

/// What limits and what counts towards them, open for reading. What it says is what has committed until now: it holds
/// until the transaction ends where the caller has locked what it asks about.
pub(crate) struct Counter {
    groups: Table,
    group_by_name: Index,
    leases: Table,
    by_group: Index,
    by_key: Index,
}

impl Counter {
    pub(crate) fn open() -> Self {
        let groups = Table::open(Group::TABLE, Group::ALL);
        let leases = Table::open(Leased::TABLE, Leased::ALL);
        Self {
            group_by_name: Index::open(&groups, c"manifest_group_pkey"),
            by_group: Index::open(&leases, c"lease_limited"),
            by_key: Index::open(&leases, c"lease_concurrency_key"),
            groups,
            leases,
        }
    }

    /// The row of a group; one without a row has the defaults.
    pub(crate) fn group(&self, name: &str) -> Option<Row> {
        let view = View::latest();
        let scan = self.group_by_name.scan(&view, 1);
        scan.seek([Key::equals_text(1, name)]);
        let row = scan.next().then(|| scan.row());
        scan.end();
        view.end();
        row
    }

    /// How many jobs of a group run that count towards its limit, up to `limit`.
    pub(crate) fn of_group(&self, name: &str, limit: i64) -> i64 {
        Self::count(&self.by_group, name, limit)
    }

    /// How many jobs of a concurrency key run. The caller has its lock.
    fn of_key(&self, key: &str) -> i64 {
        Self::count(&self.by_key, key, i64::MAX)
    }

    fn count(index: &Index, name: &str, limit: i64) -> i64 {
        let view = View::latest();
        let scan = index.scan(&view, 1);
        scan.seek([Key::equals_text(1, name)]);
        let count = scan.count(limit);
        scan.end();
        view.end();
        count
    }

    pub(crate) fn close(self) {
        self.by_key.close();
        self.by_group.close();
        self.leases.close();
        self.group_by_name.close();
        self.groups.close();
    }
}

/// How many jobs of a concurrency key run. What it says holds until the transaction ends; `None` when another
/// transaction is claiming or ending jobs of the key.
pub(crate) fn held_by_key(counter: &Counter, key: &str) -> Option<i64> {
    lock_key(key, true).then(|| counter.of_key(key))
}

/// How many jobs of one concurrency key a group allows.
pub(crate) fn max_per_key(counter: &Counter, group: &str) -> i64 {
    counter
        .group(group)
        .and_then(|row| row.get::<i32>(Group::MaxPerKey))
        .map_or(1, i64::from)
}

/// Takes rows out of their lanes whose key has no room; the caller has locked rows and keys.
pub(crate) fn block(spi: &Spi, tids: Option<pg_sys::Datum>) {
    hint::taken();
    spi.execute(&KEY_BLOCK, &[tids]);
}

/// Lets the next jobs of concurrency keys in after jobs of them have ended, as many as have ended of each lane: the next
/// of one lane may be held back by its group, or wanted by nobody; claims sort out what is too many.
///
/// A claim that is blocking jobs of a key holds its lock: we wait for it, so that what it blocks is seen. With `patient`
/// false a key whose lock is taken is left to whoever has it and to the sweep: the cycle must not wait for a worker's
/// open transaction.
pub(crate) fn free_keys(spi: &Spi, ended: Vec<String>, patient: bool) {
    // In ascending order of their locks, as every transaction takes them.
    let mut keys: BTreeMap<(u32, String), i64> = BTreeMap::new();
    for key in ended {
        *keys.entry((lock_number(&key), key)).or_default() += 1;
    }
    for ((_, key), count) in keys {
        // A claim that found the lock taken has left jobs of the key where they are.
        wake::mark(wake::WORK);
        if lock_key(&key, !patient) {
            hint::rows_claimable(&spi.change_latest(&KEY_UNBLOCK, &[arg(key), arg(count)]));
        }
    }
}

/// Lets all blocked jobs of a group in: the number that may run has changed.
pub(crate) fn unblock_group(spi: &Spi, group: &str) {
    hint::rows_claimable(&spi.change_latest(&KEY_UNBLOCK_GROUP, &[arg(group)]));
}

/// Lets the first job of each key in that has room.
pub(crate) fn sweep(spi: &Spi) {
    hint::rows_claimable(&spi.query(&KEY_SWEEP, &[arg(SWEEP_AT_MOST)]));
}

/// Keys share this many locks: a transaction that meets any number of keys takes no more than these of the server's lock
/// table. Two keys that share one stand back from each other for a moment.
const KEY_LOCKS: u64 = 512;

fn lock_number(key: &str) -> u32 {
    (work_queue::name_hash(&[key]) % KEY_LOCKS) as u32
}

fn lock_key(key: &str, only_if_free: bool) -> bool {
    let mode = pg_sys::ExclusiveLock as i32;
    group::advisory_lock_in(KEY_CLASS, lock_number(key), mode, only_if_free)
}
