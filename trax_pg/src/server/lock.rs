//! Advisory locks, and the order in which everything of ours is locked.
//!
//! Every function waits for what it locks in this order, and for things of one kind in the order of
//! the last column. What is taken only if it is free (`if_free`, `skip locked`) is never waited for
//! and may come at any place.
//!
//! | | what | in the order of |
//! |---|---|---|
//! | 1 | the cycle: only if it is free | |
//! | 2 | the edges between manifests | |
//! | 3 | all groups, then each group | name |
//! | 4 | rows of `work_queue` | job |
//! | 5 | rows of `lease` | job |
//! | 6 | concurrency keys, and manifests as what jobs share: waited for one at a time, and not kept
//! | |
//! | 7 | rows of `unique_key` | key; each with the dead letter that is requeued for it |
//! | 8 | rows of `manifest` | id |
//! | 9 | rows of `manifest_state`, then the edges of each | id |
//! | 10 | rows of `dead_letter` | unique key, then those without one by age |
//!
//! Several jobs are cancelled in the order of their ids, whether each waits or is executed.
//!
//! A claim waits only for a session that is reading which sections of lanes there are
//! (`Lock::Sections`, milliseconds); that session waits for nobody, and releases the lock at once.
//! The locks of a claim on groups, keys and manifests are taken if they are free and kept until it
//! commits; [`AT_MOST`] and [`GROUPS_AT_MOST`] limit how many they can be.
//!
//! No two things share a lock: its tag has room for 64 bits of a hash. SQL's own functions cannot
//! reach these tags.

use crate::server::backend::my_database;
use crate::server::hash::name_hash_64;
use crate::server::running::Running;
use pgrx::pg_sys;

/// Most locks that one claim keeps on limited groups, keys and manifests: the server's lock table
/// has room for those of fifty open claims, with the defaults of `max_locks_per_transaction` and
/// `max_connections` 7,800 in all.
pub(crate) const AT_MOST: usize = 96;
/// How many of them may be on keys and manifests of which the claim takes nothing, but blocks what
/// waits behind them.
pub(crate) const BLOCKED_AT_MOST: usize = 32;
/// Most groups that a transaction keeps from being configured one by one; beyond these it locks
/// them all at once.
pub(crate) const GROUPS_AT_MOST: usize = 24;

/// The last field of the tags of our locks is this and the kind of what is locked; those of SQL
/// functions have 1 and 2 there.
const SPACE: u16 = 0x7472;

/// What is locked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock<'a> {
    /// Which process is the scheduler of the database, with or without shared memory.
    Scheduler,
    Cycle,
    /// The edges between manifests: two sessions that each add half of a circle must see each
    /// other.
    Edges,
    AllGroups,
    Group(&'a str),
    /// The limit of the database.
    Database,
    /// Who reads for all sessions which sections of lanes there are.
    Sections,
    Key(&'a str),
    /// A manifest as what its jobs share.
    Manifest(i64),
    /// The row of a worker.
    Worker(&'a str),
    /// A name of tokens, and one of its places.
    Token(&'a str),
    TokenSlot(&'a str, i32),
    /// Who waits for a token.
    TokenWaiter(i64),
}

/// How it is locked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Beside others of this mode.
    Share,
    /// Beside others of this mode, not beside `Share`: for who locks a part of it too.
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

/// How long it is kept.
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

    /// Takes it until the transaction ends; false when another has it or waits for it.
    pub(crate) fn take_if_free(self, mode: Mode) -> bool {
        self.acquire(mode, Until::TransactionEnds, true)
    }

    /// Takes it alone until the session ends or releases it, whatever becomes of its
    /// transactions; false when another has it.
    pub(crate) fn take_for_session(self) -> bool {
        self.acquire(Mode::Alone, Until::SessionEnds, true)
    }

    /// Returns whether another has it alone. Needs no transaction.
    pub(crate) fn is_taken(self) -> bool {
        let is_free = self.acquire(Mode::Share, Until::SessionEnds, true);
        if is_free {
            self.release(Mode::Share, Until::SessionEnds);
        }
        !is_free
    }

    /// Returns the other transactions because of which it cannot be taken alone.
    pub(crate) fn holders(self) -> Vec<Running> {
        let tag = self.tag();
        let mut count = 0;
        // SAFETY: a complete tag; the array has so many elements.
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

    /// Releases what was taken once, before the transaction ends.
    pub(crate) fn give_back(self, mode: Mode) {
        self.release(mode, Until::TransactionEnds);
    }

    /// Releases what was taken for the session.
    pub(crate) fn give_back_for_session(self) {
        self.release(Mode::Alone, Until::SessionEnds);
    }

    fn release(self, mode: Mode, until: Until) {
        let (tag, for_session) = (self.tag(), matches!(until, Until::SessionEnds));
        // SAFETY: a complete tag; the lock belongs to this transaction or session.
        unsafe { pg_sys::LockRelease(&raw const tag, mode.number(), for_session) };
    }

    fn tag(self) -> pg_sys::LOCKTAG {
        // Of what there is only one, the first field is 1.
        let only = |number: u64| (0, 1 << 32 | number);
        let (kind, number) = match self {
            Self::Scheduler => (0, 0),
            Self::Cycle => only(0),
            Self::Edges => only(1),
            Self::AllGroups => only(2),
            Self::Database => only(3),
            Self::Sections => only(4),
            Self::Group(name) => (1, name_hash_64(&[name])),
            Self::Key(key) => (2, name_hash_64(&[key])),
            Self::Manifest(id) => (3, id as u64),
            Self::Worker(name) => (4, name_hash_64(&[name])),
            Self::Token(name) => (5, name_hash_64(&[name])),
            Self::TokenSlot(name, slot) => (6, name_hash_64(&[name, &slot.to_string()])),
            Self::TokenWaiter(id) => (7, id as u64),
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
