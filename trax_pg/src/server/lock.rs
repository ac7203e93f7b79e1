//! Advisory locks, and the order in which the extension locks everything.
//!
//! Every function waits for its locks in this order, and for locks of one kind in the order of the
//! last column. A lock that is taken only if it is free (`if_free`, `skip locked`) is never waited
//! for and may come at any point.
//!
//! | | object | in the order of |
//! |---|---|---|
//! | 1 | the cycle: `trax.believe_clock` waits for it; a cycle takes it only if it is free | |
//! | 2 | the edges between manifests | |
//! | 3 | groups as limits of waiting jobs; all groups, then each group | name |
//! | 4 | the existence of rates, then their settings | |
//! | 5 | a batch; then waits for children that belong to others | |
//! | 6 | rows of `work_queue` | job |
//! | 7 | rows of `lease` | job |
//! | 8 | concurrency keys, and manifests as limits: by outcomes, one at a time, not kept | |
//! | 9 | rows of `unique_key` | key; each with the dead letter that is requeued for it |
//! | 10 | rows of `manifest` | id |
//! | 11 | rows of `manifest_state`, then the edges of each | id |
//! | 12 | rows of `dead_letter` | unique key, then those without one by age |
//!
//! A call that cancels several jobs locks them in the order of their ids, each in the table that
//! has it: for such calls 6 and 7 are one kind.
//!
//! A claim waits only for a session that is reading the list of lanes' sections (`Lock::Sections`,
//! milliseconds); that session waits for no lock, and releases this one at once. A claim takes its
//! locks on groups, keys and manifests if they are free, and keeps them until it commits; those of
//! limits under which it took and blocked no job it releases before. [`AT_MOST`] and
//! [`GROUPS_AT_MOST`] limit their number.
//!
//! The sender of a signal waits for a mover that takes the job to another shard
//! (`Lock::Signals`, one batch); the mover takes this lock only if it is free.
//!
//! No two objects share a lock: its tag has room for 64 bits of a hash. SQL's advisory lock
//! functions cannot reach these tags.

use crate::server::backend::my_database;
use crate::server::hash::name_hash_64;
use crate::server::running::Running;
use pgrx::pg_sys;

/// The most locks that one claim keeps on limited groups, keys and manifests: the server's lock
/// table has room for those of fifty open claims (7,800 in all with the defaults of
/// `max_locks_per_transaction` and `max_connections`).
pub(crate) const AT_MOST: usize = 96;
/// How many of them may be on keys and manifests of which the claim takes nothing, but blocks the
/// jobs that wait behind them.
pub(crate) const BLOCKED_AT_MOST: usize = 32;
/// The most groups whose configuration a transaction locks one by one; beyond these it locks them
/// all at once.
pub(crate) const GROUPS_AT_MOST: usize = 24;

/// The last field of the extension's lock tags is this plus the kind of lock; SQL's functions use 1
/// and 2 there.
const SPACE: u16 = 0x7472;

/// The object of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock<'a> {
    /// The right to be the scheduler of the database, with or without shared memory.
    Scheduler,
    Cycle,
    /// The edges between manifests: two sessions that each add half of a circle must see each
    /// other.
    Edges,
    AllGroups,
    Group(&'a str),
    /// The jobs that wait in a group, while jobs are added to it.
    Waiting(&'a str),
    /// The limit of the database.
    Database,
    /// The right to read, for all sessions, the list of lanes' sections.
    Sections,
    Key(&'a str),
    /// The settings of a rate.
    Rate(&'a str),
    /// The existence of a rate.
    RateUse(&'a str),
    /// A manifest as the limit of its jobs.
    Manifest(i64),
    /// The row of a worker.
    Worker(&'a str),
    /// A name of tokens, and one of its slots.
    Token(&'a str),
    TokenSlot(&'a str, i32),
    /// The wait of a session for a token.
    TokenWaiter(i64),
    /// A name of a job's steps, while one is added; nothing is waited for under it.
    Step(i64, &'a str),
    /// A batch: shared by those who add to it, alone for the one who seals it.
    Batch(i64),
    /// Waits of jobs for jobs that they have not spawned: two that each begin half of a circle must
    /// see each other.
    Circles,
    /// The signals to a part of all jobs: shared by their senders, alone for the one who takes such
    /// jobs to another shard.
    Signals(u64),
    /// Claims that wait for many jobs, with one filter.
    Many(&'a str),
}

/// The mode of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Compatible with itself.
    Share,
    /// Compatible with itself, not with `Share`: for a session that also locks a part.
    Part,
    Alone,
}

impl Mode {
    fn number(self) -> i32 {
        let mode = match self {
            Self::Share => pg_sys::ShareLock,
            Self::Part => pg_sys::RowExclusiveLock,
            Self::Alone => pg_sys::ExclusiveLock,
        };
        mode as i32
    }
}

/// How long the lock is kept.
#[derive(Clone, Copy)]
enum Until {
    TransactionEnds,
    SessionEnds,
}

impl Lock<'_> {
    /// Takes it until the transaction ends.
    pub(crate) fn take(self, mode: Mode) {
        self.acquire(mode, Until::TransactionEnds, false);
    }

    /// Takes it until the transaction ends; returns false when another session has it or waits for
    /// it.
    pub(crate) fn take_if_free(self, mode: Mode) -> bool {
        self.acquire(mode, Until::TransactionEnds, true)
    }

    /// Takes it in mode `Alone` until the session ends or releases it, across its transactions;
    /// returns false when another session has it.
    pub(crate) fn take_for_session(self) -> bool {
        self.acquire(Mode::Alone, Until::SessionEnds, true)
    }

    /// Returns whether another session has it in mode `Alone`. Needs no transaction.
    pub(crate) fn is_taken(self) -> bool {
        let is_free = self.acquire(Mode::Share, Until::SessionEnds, true);
        if is_free {
            self.release(Mode::Share, Until::SessionEnds);
        }
        !is_free
    }

    /// Returns the other transactions that keep it from being taken in mode `Alone`.
    pub(crate) fn holders(self) -> Vec<Running> {
        let tag = self.tag();
        let mut count = 0;
        // SAFETY: a complete tag; the array has `count` elements.
        unsafe {
            let found =
                pg_sys::GetLockConflicts(&raw const tag, Mode::Alone.number(), &raw mut count);
            let found = std::slice::from_raw_parts(found, count as usize);
            found.iter().copied().map(Running::of_virtual).collect()
        }
    }

    fn acquire(self, mode: Mode, until: Until, only_if_free: bool) -> bool {
        let (tag, for_session) = (self.tag(), matches!(until, Until::SessionEnds));
        // SAFETY: a complete tag; the lock ends with its transaction or with its session.
        let outcome = unsafe {
            pg_sys::LockAcquire(&raw const tag, mode.number(), for_session, only_if_free)
        };
        outcome != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Releases a lock that was taken once, before the transaction ends.
    pub(crate) fn give_back(self, mode: Mode) {
        self.release(mode, Until::TransactionEnds);
    }

    /// Releases a lock that was taken for the session.
    pub(crate) fn give_back_for_session(self) {
        self.release(Mode::Alone, Until::SessionEnds);
    }

    fn release(self, mode: Mode, until: Until) {
        let (tag, for_session) = (self.tag(), matches!(until, Until::SessionEnds));
        // SAFETY: a complete tag; the lock belongs to this transaction or session.
        unsafe { pg_sys::LockRelease(&raw const tag, mode.number(), for_session) };
    }

    /// Returns the columns `classid`, `objid` and `objsubid` with which `pg_locks` shows it.
    pub(crate) fn columns(self) -> (pg_sys::Oid, pg_sys::Oid, i16) {
        let tag = self.tag();
        let oid = |field| pg_sys::Oid::from(field);
        let (class, object) = (oid(tag.locktag_field2), oid(tag.locktag_field3));
        (class, object, tag.locktag_field4.cast_signed())
    }

    fn tag(self) -> pg_sys::LOCKTAG {
        // A kind with a single lock has 1 in the first field.
        let only = |number: u64| (0, 1 << 32 | number);
        let (kind, number) = match self {
            Self::Scheduler => (0, 0),
            Self::Cycle => only(0),
            Self::Edges => only(1),
            Self::AllGroups => only(2),
            Self::Database => only(3),
            Self::Sections => only(4),
            Self::Circles => only(5),
            Self::Group(name) => (1, name_hash_64(&[name])),
            Self::Key(key) => (2, name_hash_64(&[key])),
            Self::Manifest(id) => (3, id as u64),
            Self::Worker(name) => (4, name_hash_64(&[name])),
            Self::Token(name) => (5, name_hash_64(&[name])),
            Self::TokenSlot(name, slot) => (6, name_hash_64(&[name, &slot.to_string()])),
            Self::TokenWaiter(id) => (7, id as u64),
            Self::Rate(name) => (9, name_hash_64(&[name])),
            Self::RateUse(name) => (10, name_hash_64(&[name])),
            Self::Waiting(name) => (12, name_hash_64(&[name])),
            Self::Step(job_id, name) => (8, name_hash_64(&[&job_id.to_string(), name])),
            Self::Batch(id) => (11, id as u64),
            Self::Many(filter) => (14, name_hash_64(&[filter])),
            Self::Signals(part) => (13, part),
        };
        pg_sys::LOCKTAG {
            locktag_field1: my_database().to_u32(),
            locktag_field2: (number >> 32) as u32,
            locktag_field3: number as u32,
            locktag_field4: SPACE + kind,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}
