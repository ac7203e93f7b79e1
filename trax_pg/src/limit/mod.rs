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
//! A count begins at its bound (`memory/bound.rs`), so that it does not read
//! leases that have ended while a snapshot is held somewhere: after 5,000 jobs of one group a claim
//! touches 16 buffers, and 158 without bounds.
//!
//! Nothing scans blocked work: the lanes of a group that is full are not read. A job behind its key
//! or its manifest is taken out of its lane by the first claim that meets it (`waits_for`), and the
//! outcome that makes room lets the next one in.

mod counter;
pub(crate) mod database;
pub(crate) mod group;
mod key_and_manifest;
mod sweep;

pub(crate) use counter::{Counter, Held};
pub(crate) use key_and_manifest::{
    Blocked, Shared, allowed, block, free, free_left, hand_on, has_left, held, holders_of,
    unblock_group, unblock_manifest,
};
pub(crate) use sweep::sweep;

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
