//! Limits: how many jobs may run at once, of the database, of a group, of a manifest, of a
//! concurrency key.
//!
//! A lease is the token: it is there exactly while the job runs, it goes with the outcome or with
//! the reaper, and it crashes with the transaction. A claim counts the leases that have committed
//! while it holds a lock on what is limited, which it keeps until it commits; so limits are exact
//! under any number of claimers, and changing one is changing a number: growing counts at once,
//! shrinking lets nothing new in until enough have ended.
//!
//! Departs from rows of tokens: a row for each slot would be written twice for each job and retired
//! when a limit shrinks. The price is that claims of one limited group follow each other, commit by
//! commit; one that finds the lock taken steps over the group.
//!
//! A count begins at the floor of what it counts (`memory/floor.rs`), so that it does not read
//! leases that have ended while a snapshot is held somewhere: after 5,000 jobs of one group a claim
//! touches 16 buffers, and 158 without floors.
//!
//! Nothing scans blocked work: the lanes of a group that is full are not read. A job behind its key
//! or its manifest is taken out of its lane by the first claim that meets it (`waits_for`), and the
//! outcome that makes room lets the next one in.

use crate::columns::Group;
use crate::columns::Leased;
use crate::memory::{Floor, Known};
use crate::server::clock::Timestamp;
use crate::server::hash::name_hash;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::{Spi, Statement, arg, array_arg, statement};
use crate::server::table::{Index, Key, Row, Table, View};
use crate::{changes, memory, setting, wake};
use pgrx::{FromDatum, IntoDatum, pg_sys};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Lanes of keys, and of manifests, that one sweep looks at.
const SWEEP_AT_MOST: i32 = 5000;

statement!(KEY_BLOCK, "limit/key_block.sql", TIDARRAYOID, TEXTARRAYOID);
statement!(KEY_UNBLOCK, "limit/key_unblock.sql", TEXTOID, INT8OID);
statement!(KEY_UNBLOCK_GROUP, "limit/key_unblock_group.sql", TEXTOID);
statement!(KEY_SWEEP, "limit/key_sweep.sql", TEXTOID, INT8OID, INT4OID);
statement!(
    MANIFEST_CONCURRENCY,
    "limit/manifest_concurrency.sql",
    INT8OID
);
statement!(
    MANIFEST_UNBLOCK,
    "limit/manifest_unblock.sql",
    INT8OID,
    INT8OID
);
statement!(
    MANIFEST_SWEEP_BLOCKED,
    "limit/manifest_sweep_blocked.sql",
    INT8OID,
    INT8OID,
    INT4OID
);

/// What jobs share that lets only so many of them run at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shared {
    /// A concurrency key.
    Key(String),
    Manifest(i64),
}

impl Shared {
    /// What a row has of the two.
    pub(crate) fn of(key: Option<String>, manifest_id: Option<i64>) -> impl Iterator<Item = Self> {
        let manifest = manifest_id.map(Self::Manifest);
        key.map(Self::Key).into_iter().chain(manifest)
    }

    /// What `waits_for` says of a job behind it.
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

    fn floor(&self) -> Floor {
        Floor::of(match self {
            Self::Key(key) => name_hash(&["key", key]),
            Self::Manifest(id) => name_hash(&["manifest", &id.to_string()]),
        })
    }

    /// A job that shares it is being claimed.
    pub(crate) fn takes(&self, job_id: i64) {
        self.floor().lower(job_id);
    }

    /// Lets it go, of which a claim has taken and blocked nothing.
    pub(crate) fn let_go(&self) {
        self.lock().give_back(Mode::Alone);
    }
}

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

/// How long what the scheduler has said of the database's limit counts, in microseconds: it says it
/// whenever it wakes, every two seconds at least.
const SAID_MICROS: i64 = 15_000_000;

/// The scheduler says what the limit of its database is, for sessions that were connected before it
/// was changed.
pub(crate) fn say_limit_of_database() {
    if let Some(bell) = memory::bell()
        && bell.say_limit(setting::max_active_jobs(), Timestamp::now().0)
    {
        bell.ring(wake::WORK);
    }
}

fn limit_of_database() -> Option<usize> {
    let own = setting::max_active_jobs();
    let since = Timestamp::now().0 - SAID_MICROS;
    match memory::bell().and_then(|bell| bell.said_limit(since)) {
        Some(said) if said != own && !setting::chose_max_active_jobs() => said,
        _ => own,
    }
}

/// How many more jobs may run in the whole database. What it says holds until the transaction ends.
pub(crate) fn room_in_database(counter: &Counter) -> Room {
    let Some(limit) = limit_of_database() else {
        return Room::Unlimited;
    };
    if !Lock::Database.take_if_free(Mode::Alone) {
        return Room::Busy;
    }
    wake::may_be_full();
    let limit = limit as i64;
    Room::For(limit - counter.of_database(limit))
}

/// What limits and what counts towards them, open for reading. What it says is what has committed
/// until now: it holds until the transaction ends where the caller has locked what it asks about.
pub(crate) struct Counter {
    groups: Table,
    group_by_name: Index,
    leases: Table,
    by_job: Index,
    by_group: Index,
    by_key: Index,
    by_manifest: Index,
}

impl Counter {
    pub(crate) fn open() -> Self {
        let groups = Table::open(Group::TABLE, Group::ALL);
        let leases = Table::open(Leased::TABLE, Leased::ALL);
        Self {
            group_by_name: Index::open(&groups, c"manifest_group_pkey"),
            by_job: Index::open(&leases, c"lease_pkey"),
            by_group: Index::open(&leases, c"lease_limited"),
            by_key: Index::open(&leases, c"lease_concurrency_key"),
            by_manifest: Index::open(&leases, c"lease_manifest"),
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
        let what = |from| [Key::equals_text(1, name), Key::at_least(2, from)];
        Self::count(&self.by_group, floor_of_group(name), what, limit).count
    }

    /// How many jobs run in the database, up to `limit`.
    fn of_database(&self, limit: i64) -> i64 {
        let what = |from| [Key::at_least(1, from)];
        Self::count(&self.by_job, Floor::of_database(), what, limit).count
    }

    /// The jobs that run and share this. The caller has its lock.
    fn of_shared(&self, shared: &Shared) -> Held {
        let floor = shared.floor();
        match shared {
            Shared::Key(key) => {
                let what = |from| [Key::equals_text(1, key), Key::at_least(2, from)];
                Self::count(&self.by_key, floor, what, i64::MAX)
            }
            Shared::Manifest(id) => {
                let what = |from| [Key::equals(1, *id), Key::at_least(2, from)];
                Self::count(&self.by_manifest, floor, what, i64::MAX)
            }
        }
    }

    /// Counts what is at `what` in an index whose last column is the job, from the floor on, and
    /// raises that. The caller has the lock under which such leases are granted.
    fn count<const N: usize>(
        index: &Index,
        floor: Floor,
        what: impl Fn(i64) -> [Key; N],
        limit: i64,
    ) -> Held {
        // What this transaction has written by hand no floor of others knows.
        let mut known = if changes::has_written_by_hand() {
            Known::NOTHING
        } else {
            floor.known()
        };
        let (held, first) = loop {
            let view = View::latest();
            let scan = index.scan(&view, N as i32);
            scan.seek(what(known.from));
            let mut held = Held::default();
            let mut first = i64::MAX;
            while held.count < limit && scan.next() {
                if held.count == 0 {
                    first = scan.number(Leased::JobId);
                }
                held.count += 1;
                held.may_end |= scan.is_changing();
            }
            scan.end();
            view.end();
            if floor.holds(known) {
                break (held, first);
            }
            known = Known::NOTHING;
        };
        if let Some(first) = changes::first_that_may_count(first) {
            floor.raise(known, first);
        }
        held
    }

    pub(crate) fn close(self) {
        self.by_manifest.close();
        self.by_key.close();
        self.by_group.close();
        self.by_job.close();
        self.leases.close();
        self.group_by_name.close();
        self.groups.close();
    }
}

fn floor_of_group(name: &str) -> Floor {
    Floor::of(name_hash(&["group", name]))
}

/// A job of a group with a limit is being claimed.
pub(crate) fn group_takes(name: &str, job_id: i64) {
    floor_of_group(name).lower(job_id);
}

/// What runs in a group counts towards its limit from now on.
pub(crate) fn counts_anew(name: &str) {
    floor_of_group(name).forget();
}

/// A job is being claimed in a database that has a limit.
pub(crate) fn database_takes(job_id: i64) {
    Floor::of_database().lower(job_id);
}

/// The jobs that run and share something.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) count: i64,
    /// Some of them are being ended: who ends them has waited for the claims before us, and not for
    /// this one.
    pub(crate) may_end: bool,
}

/// The jobs that run and share this. What it says holds until the transaction ends; `None` when
/// another transaction is claiming such jobs.
pub(crate) fn held(counter: &Counter, shared: &Shared) -> Option<Held> {
    let is_free = shared.lock().take_if_free(Mode::Alone);
    is_free.then(|| counter.of_shared(shared))
}

/// How many jobs that share this may run at once, in a group.
pub(crate) fn allowed(spi: &Spi, counter: &Counter, shared: &Shared, group: &str) -> i64 {
    match shared {
        Shared::Key(_) => counter
            .group(group)
            .and_then(|row| row.get::<i32>(Group::MaxPerKey))
            .map_or(1, i64::from),
        // Jobs outlive a manifest that is unscheduled.
        Shared::Manifest(id) => spi
            .query_latest(&MANIFEST_CONCURRENCY, &[arg(*id)])
            .first()
            .map_or(i64::MAX, |row| i64::from(row.must::<i32>(1))),
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
    let (tids, reasons) = (
        array_arg(pg_sys::TIDOID, &tids),
        array_arg(pg_sys::TEXTOID, &reasons),
    );
    spi.execute(&KEY_BLOCK, &[tids, reasons]);
}

/// How many have ended of each.
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

/// Lets the next jobs in behind what earlier cycles of this backend have left.
pub(crate) fn free_left(spi: &Spi) {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    let ended = left
        .into_iter()
        .flat_map(|(shared, count)| std::iter::repeat_n(shared, count as usize));
    free(spi, ended, false);
}

/// Whether anything is left to the next cycle.
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
        Shared::Key(key) => spi.change_latest(&KEY_UNBLOCK, &[arg(key.as_str()), at_most]),
        Shared::Manifest(id) => spi.change_latest(&MANIFEST_UNBLOCK, &[arg(*id), at_most]),
    };
    changes::rows_claimable(&rows);
}

/// Lets all blocked jobs of a manifest in: the number that may run has changed.
pub(crate) fn unblock_manifest(spi: &Spi, manifest_id: i64) {
    unblock(spi, &Shared::Manifest(manifest_id), None);
}

/// Lets all blocked jobs of a group in: the number that may run has changed.
pub(crate) fn unblock_group(spi: &Spi, group: &str) {
    changes::rows_claimable(&spi.change_latest(&KEY_UNBLOCK_GROUP, &[arg(group)]));
}

/// Where this backend's last sweeps stopped: the keys or manifests behind which jobs wait, and
/// their lanes.
static SWEPT_KEYS: Mutex<Option<(String, i64)>> = Mutex::new(None);
static SWEPT_MANIFESTS: Mutex<Option<(i64, i64)>> = Mutex::new(None);

/// Lets the first job of each key and of each manifest in that has room.
pub(crate) fn sweep(spi: &Spi) {
    let beginning = (String::new(), i64::MIN);
    sweep_on(spi, &KEY_SWEEP, &SWEPT_KEYS, beginning);
    sweep_on(
        spi,
        &MANIFEST_SWEEP_BLOCKED,
        &SWEPT_MANIFESTS,
        (0, i64::MIN),
    );
}

/// One sweep from where the last one stopped, or from the beginning when that came to the end.
fn sweep_on<T: IntoDatum + FromDatum>(
    spi: &Spi,
    statement: &'static Statement,
    swept_to: &Mutex<Option<(T, i64)>>,
    beginning: (T, i64),
) {
    let mut swept_to = swept_to.lock().unwrap_or_else(PoisonError::into_inner);
    let (shared, lane) = swept_to.take().unwrap_or(beginning);
    let rows = spi.query(statement, &[arg(shared), arg(lane), arg(SWEEP_AT_MOST)]);
    for row in rows.iter() {
        if let Some(lane) = row.get(1) {
            changes::claimable(lane, row.must(2), row.must(3));
        }
    }
    let last = rows
        .first()
        .filter(|row| row.must::<i32>(6) == SWEEP_AT_MOST);
    *swept_to = last.map(|row| (row.must(4), row.must(5)));
}
