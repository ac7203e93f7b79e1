//! The room of a group: whether it is enabled, and its limit.
//!
//! A claim holds a shared lock on each group that it takes jobs from, or one on all groups if they
//! are many; on a group with a limit it holds an exclusive lock. The configuration of a group takes
//! the exclusive lock of the group, and a lock on all groups that conflicts with the shared one. So
//! when a pause has committed, no claim that began before it can still commit. The locks are
//! advisory locks, because a row lock would write WAL for every claim.

use super::{Counter, Room};
use crate::columns::Group;
use crate::memory::Bound;
use crate::server::clock::Timestamp;
use crate::server::lock;
use crate::server::lock::{Lock, Mode};
use crate::server::table::Key;

/// The groups that a transaction has locked in shared mode, so that none can be configured until it
/// commits.
#[derive(Default)]
pub(crate) struct LockedGroups {
    one_by_one: usize,
    all: bool,
}

impl LockedGroups {
    /// Locks a group; returns false if it is being configured, or, once all groups are locked
    /// together, if any group is.
    pub(crate) fn lock(&mut self, group: &str) -> bool {
        if self.all {
            return true;
        }
        if self.one_by_one < lock::GROUPS_AT_MOST {
            let kept = Lock::Group(group).take_if_free(Mode::Share);
            self.one_by_one += usize::from(kept);
            return kept;
        }
        self.all = Lock::AllGroups.take_if_free(Mode::Share);
        self.all
    }

    /// Releases the group that was locked last.
    fn unlock(&mut self, group: &str) {
        if !self.all {
            Lock::Group(group).give_back(Mode::Share);
            self.one_by_one -= 1;
        }
    }
}

/// The room of a group, and the rate under which its jobs start.
pub(crate) struct GroupRoom {
    pub(crate) room: Room,
    pub(crate) rate: Option<String>,
}

impl From<Room> for GroupRoom {
    fn from(room: Room) -> Self {
        Self { room, rate: None }
    }
}

/// Returns how many jobs of this group a claim may take now; none if it is disabled. The result
/// holds until the transaction ends, or, if it is a number, until [`unlock`]. `limited` is whether
/// the group had a limit when the claim read the lanes.
pub(crate) fn room(
    counter: &Counter,
    kept: &mut LockedGroups,
    group: &str,
    limited: bool,
    now: Timestamp,
) -> GroupRoom {
    let gate = Bound::full_until(group);
    let before = gate.read();
    // The lock comes first: a snapshot that is taken under it shows all leases that others granted.
    // Claims of a group with a limit run one after the other; others run concurrently.
    let is_kept = if limited {
        Lock::Group(group).take_if_free(Mode::Alone)
    } else {
        kept.lock(group)
    };
    if !is_kept {
        return Room::Busy.into();
    }
    let found = room_of_kept(counter, group, limited);
    let room = found.room;
    if room.is_none() {
        if limited && room != Room::Busy {
            gate.close(before, now.0);
        }
        // No job of the group will be taken. A claim may meet more full groups than the server's
        // lock table has room for.
        if limited {
            unlock(group);
        } else {
            kept.unlock(group);
        }
    }
    found
}

fn room_of_kept(counter: &Counter, group: &str, limited: bool) -> GroupRoom {
    let Some(row) = counter.group(group) else {
        return Room::Unlimited.into();
    };
    let limit = row.get::<i32>(Group::MaxActiveJobs).map(i64::from);
    let room = match limit {
        _ if row.get(Group::Enabled) != Some(true) => Room::For(0),
        None => Room::Unlimited,
        // The limit is new, and this lock is only shared: the next claim takes an exclusive one.
        Some(_) if !limited => Room::Busy,
        Some(limit) => Room::For(limit - count(counter, group, limit)),
    };
    let rate = row.get(Group::Rate);
    GroupRoom { room, rate }
}

/// Releases the lock of a limited group, under which a claim has taken no job.
pub(crate) fn unlock(group: &str) {
    Lock::Group(group).give_back(Mode::Alone);
}

/// Returns whether this group is disabled. A true result holds until the transaction ends.
pub(crate) fn stays_disabled(kept: &mut LockedGroups, group: &str) -> bool {
    if !kept.lock(group) {
        return false;
    }
    let counter = Counter::open();
    let enabled = counter.group(group).and_then(|row| row.get(Group::Enabled));
    counter.close();
    enabled == Some(false)
}

/// Returns how many running jobs count towards the limit of a group, up to `limit`.
fn count(counter: &Counter, name: &str, limit: i64) -> i64 {
    let what = |from| [Key::equals_text(1, name), Key::at_least(2, from)];
    Counter::count(&counter.by_group, bound(name), what, limit).count
}

fn bound(name: &str) -> Bound {
    Bound::first_lease("group", name)
}

/// Lowers the bound to a job that is being claimed from a group with a limit.
pub(crate) fn lower_bound(name: &str, job_id: i64) {
    bound(name).lower(job_id);
}

/// Makes the bound of a group void, because all its running jobs are about to count towards its
/// limit.
pub(crate) fn void_bound(name: &str) {
    bound(name).void();
}
