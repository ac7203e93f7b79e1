//! The switch and the limit of a group, as a claim asks for them.
//!
//! A claim holds a shared lock on each group it takes jobs from, or one on all groups when they are
//! many; configuring a group takes its lock alone, and a part of that on all. So when a pause has
//! committed, no claim that began before it can still commit. The locks live in memory only: a row
//! lock would write WAL for every claim.

use super::{Counter, Room};
use crate::columns::Group;
use crate::memory::Bound;
use crate::server::clock::Timestamp;
use crate::server::lock;
use crate::server::lock::{Lock, Mode};
use crate::server::table::Key;

/// The groups that a step of a transaction keeps from being configured until it commits.
#[derive(Default)]
pub(crate) struct Kept {
    one_by_one: usize,
    all: bool,
}

impl Kept {
    /// Keeps one; false when it, or where many are kept any other, is being configured.
    pub(crate) fn keep(&mut self, group: &str) -> bool {
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

    /// Lets the one go that was kept last.
    fn unlock(&mut self, group: &str) {
        if !self.all {
            Lock::Group(group).give_back(Mode::Share);
            self.one_by_one -= 1;
        }
    }
}

/// Returns how many jobs of this group a claim may take now; none when it is switched off. The
/// result holds until the transaction ends, or until [`unlock`] where it is a number. `limited` is
/// whether the group had a limit when the claim looked at the lanes.
pub(crate) fn room(
    counter: &Counter,
    kept: &mut Kept,
    group: &str,
    limited: bool,
    now: Timestamp,
) -> Room {
    let gate = Bound::full_until(group);
    let before = gate.read();
    // The lock comes first: only a snapshot taken under it is sure to see what has committed.
    // Claims of a group with a limit follow each other; others go side by side.
    let is_kept = if limited {
        Lock::Group(group).take_if_free(Mode::Alone)
    } else {
        kept.keep(group)
    };
    if !is_kept {
        return Room::Busy;
    }
    let room = room_of_kept(counter, group, limited);
    if room.is_none() {
        if limited && room != Room::Busy {
            gate.close(before, now.0);
        }
        // Nothing is taken of it. A claim may meet more full groups than the server's lock table
        // has room for.
        if limited {
            unlock(group);
        } else {
            kept.unlock(group);
        }
    }
    room
}

fn room_of_kept(counter: &Counter, group: &str, limited: bool) -> Room {
    let Some(row) = counter.group(group) else {
        return Room::Unlimited;
    };
    if row.get(Group::Enabled) != Some(true) {
        return Room::For(0);
    }
    let Some(limit) = row.get::<i32>(Group::MaxActiveJobs).map(i64::from) else {
        return Room::Unlimited;
    };
    if !limited {
        // It has got its limit since: the next claim knows.
        return Room::Busy;
    }
    Room::For(limit - count(counter, group, limit))
}

/// Lets a limited group go of which a claim has taken nothing.
pub(crate) fn unlock(group: &str) {
    Lock::Group(group).give_back(Mode::Alone);
}

/// Returns whether this group is switched off. True holds until the transaction ends.
pub(crate) fn stays_disabled(kept: &mut Kept, group: &str) -> bool {
    if !kept.keep(group) {
        return false;
    }
    let counter = Counter::open();
    let enabled = counter.group(group).and_then(|row| row.get(Group::Enabled));
    counter.close();
    enabled == Some(false)
}

/// Returns how many jobs of a group run that count towards its limit, up to `limit`.
fn count(counter: &Counter, name: &str, limit: i64) -> i64 {
    let what = |from| [Key::equals_text(1, name), Key::at_least(2, from)];
    Counter::count(&counter.by_group, bound(name), what, limit).count
}

fn bound(name: &str) -> Bound {
    Bound::first_lease("group", name)
}

/// Counts a job of a group with a limit that is being claimed.
pub(crate) fn takes(name: &str, job_id: i64) {
    bound(name).lower(job_id);
}

/// Makes what runs in a group count towards its limit from now on.
pub(crate) fn counts_anew(name: &str) {
    bound(name).void();
}
