//! Groups: named sets of jobs that share a priority, a switch and a limit.
//!
//! A claim holds a shared lock on each group it takes jobs from, or one on all groups when they are
//! many; configuring a group takes its lock alone, and a part of that on all. So when a pause has
//! committed, no claim that began before it can still commit. The locks live in memory only: a row
//! lock would write WAL for every claim.

use crate::columns::{Group, HIGHEST_PRIORITY};
use crate::error::{Error, Result};
use crate::limit;
use crate::limit::{Counter, Room};
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::lock;
use crate::server::lock::{Lock, Mode};
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::{changes, manifest_state};
use pgrx::pg_sys;
use std::collections::BTreeSet;

statement!(
    LEASE_COUNT_LIMITED,
    "group/lease_count_limited.sql",
    TEXTARRAYOID
);
statement!(GROUP_KNOWN, "group/known.sql", TEXTOID);
statement!(
    GROUP_CONFIGURE,
    "group/configure.sql",
    TEXTOID,
    INT4OID,
    INT4OID,
    BOOLOID,
    INT4OID,
    TIMESTAMPTZOID,
    BOOLOID
);
statement!(
    GROUP_SETTLED,
    "group/settled.sql",
    TEXTOID,
    INT4OID,
    INT4OID,
    BOOLOID,
    INT4OID
);
statement!(GROUP_FORGET, "group/forget.sql", TEXTOID);

sql_function!(
    trax_configure_group,
    pg_finfo_trax_configure_group,
    |call| {
        configure(call)?;
        Ok(call.null())
    }
);

fn configure(call: &Call) -> Result<()> {
    let settings = Settings {
        name: call.name(0, "name")?,
        max_active_jobs: call.optional_within(1, "max_active_jobs", 0, i32::MAX)?,
        priority: call.optional_within(2, "priority", 0, HIGHEST_PRIORITY)?,
        enabled: call.optional::<bool>(3),
        max_per_key: call.optional_within(4, "max_per_key", 1, i32::MAX)?,
        applied: false,
    };
    spi::connected(|spi| {
        lock_all([settings.name.as_str()]);
        store(spi, &settings, Timestamp::now());
        count(spi, &[&settings]);
        unpark(spi, &parked(spi, &[&settings]));
        Ok(())
    })
}

/// Settings of a group; `None` keeps what is stored.
pub(crate) struct Settings {
    pub(crate) name: String,
    /// 0 is no limit.
    pub(crate) max_active_jobs: Option<i32>,
    pub(crate) priority: Option<i32>,
    pub(crate) enabled: Option<bool>,
    pub(crate) max_per_key: Option<i32>,
    /// They come from `trax.apply`, which may prune what it created.
    pub(crate) applied: bool,
}

impl Settings {
    /// Those of a group that nobody has configured.
    pub(crate) fn none(name: String) -> Self {
        Self {
            name,
            max_active_jobs: Some(0),
            priority: Some(0),
            enabled: Some(true),
            max_per_key: Some(1),
            applied: false,
        }
    }
}

/// Waits until no claim of these groups is under way, and keeps others from beginning. Several must
/// be taken at once.
pub(crate) fn lock_all<'a>(names: impl IntoIterator<Item = &'a str>) {
    let names: BTreeSet<&str> = names.into_iter().collect();
    if !names.is_empty() {
        Lock::AllGroups.take(Mode::Part);
    }
    for name in names {
        Lock::Group(name).take(Mode::Alone);
    }
}

impl Settings {
    fn arguments(&self) -> [Option<pg_sys::Datum>; 5] {
        [
            arg(self.name.as_str()),
            self.max_active_jobs.and_then(arg),
            self.priority.and_then(arg),
            self.enabled.and_then(arg),
            self.max_per_key.and_then(arg),
        ]
    }

    /// Whether the group has them already.
    pub(crate) fn are_stored(&self, spi: &Spi) -> bool {
        spi.query(&GROUP_SETTLED, &self.arguments()).len() > 0
    }
}

/// Writes the settings of a group that is locked.
pub(crate) fn store(spi: &Spi, settings: &Settings, now: Timestamp) {
    changes::group_configured(&settings.name);
    let [name, limit, priority, enabled, per_key] = settings.arguments();
    let applied = arg(settings.applied);
    spi.execute(
        &GROUP_CONFIGURE,
        &[name, limit, priority, enabled, per_key, arg(now), applied],
    );
}

/// What follows for the jobs of groups whose settings were written: what runs counts towards a
/// limit, what waits behind a key may be let in. The leases of all groups that a transaction
/// changes are locked at once.
pub(crate) fn count(spi: &Spi, groups: &[&Settings]) {
    let limited: Vec<String> = groups
        .iter()
        .filter(|settings| settings.max_active_jobs.is_some_and(|limit| limit > 0))
        .map(|settings| settings.name.clone())
        .collect();
    for name in &limited {
        limit::counts_anew(name);
    }
    if !limited.is_empty() {
        // What runs already counts: no claim of these groups is under way.
        spi.change_latest(&LEASE_COUNT_LIMITED, &[arg(limited)]);
    }
    for settings in groups {
        if settings.max_per_key.is_some() {
            limit::unblock_group(spi, &settings.name);
        }
    }
}

/// Forgets the settings of a group that has been given those of [`Settings::none`].
pub(crate) fn forget(spi: &Spi, name: &str) {
    spi.execute(&GROUP_FORGET, &[arg(name)]);
}

/// Refuses a group that nothing has ever named.
pub(crate) fn require_known(spi: &Spi, name: &str) -> Result<()> {
    if spi.query(&GROUP_KNOWN, &[arg(name)]).len() > 0 {
        return Ok(());
    }
    Err(Error::unknown(format!("group \"{name}\" does not exist"))
        .detail("No job, no manifest and no configuration names it.")
        .hint("List the names with: select group_name from trax.lane union select group_name from trax.manifest order by 1"))
}

/// The manifests that may go on because their group has been switched on.
pub(crate) fn parked(spi: &Spi, groups: &[&Settings]) -> Vec<i64> {
    let enabled: Vec<String> = groups
        .iter()
        .filter(|settings| settings.enabled == Some(true))
        .map(|settings| settings.name.clone())
        .collect();
    if enabled.is_empty() {
        return Vec::new();
    }
    manifest_state::parked_on_groups(spi, enabled)
}

/// Lets manifests go on whose group has been switched on.
pub(crate) fn unpark(spi: &Spi, manifests: &[i64]) {
    if !manifests.is_empty() {
        manifest_state::unpark_of_groups(spi, manifests);
    }
}

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
    fn let_go(&mut self, group: &str) {
        if !self.all {
            Lock::Group(group).give_back(Mode::Share);
            self.one_by_one -= 1;
        }
    }
}

/// How many jobs of this group a claim may take now; none when it is switched off. What it says
/// holds until the transaction ends, or until [`let_go`] where it is a number. `limited` is whether
/// the group had a limit when the claim looked at the lanes.
pub(crate) fn room(
    counter: &Counter,
    kept: &mut Kept,
    group: &str,
    limited: bool,
    now: Timestamp,
) -> Room {
    let gate = changes::gate(group);
    let changes = gate.changes();
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
            gate.close(changes, now.0);
        }
        // Nothing is taken of it. A claim may meet more full groups than the server's lock table
        // has room for.
        if limited {
            let_go(group);
        } else {
            kept.let_go(group);
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
    Room::For(limit - counter.of_group(group, limit))
}

/// Lets a limited group go of which a claim has taken nothing.
pub(crate) fn let_go(group: &str) {
    Lock::Group(group).give_back(Mode::Alone);
}

/// Whether this group is switched off. True holds until the transaction ends.
pub(crate) fn stays_disabled(kept: &mut Kept, group: &str) -> bool {
    if !kept.keep(group) {
        return false;
    }
    let counter = Counter::open();
    let enabled = counter.group(group).and_then(|row| row.get(Group::Enabled));
    counter.close();
    enabled == Some(false)
}
