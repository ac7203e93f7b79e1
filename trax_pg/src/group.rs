//! Groups: named sets of jobs that share a priority, a switch and a limit.
//!
//! Configuring a group waits for the claims that take jobs of it (`limit/group.rs`), and keeps new
//! ones from beginning.

use crate::columns::HIGHEST_PRIORITY;
use crate::error::{Error, Result};
use crate::limit;
use crate::server::call::{Call, new_name, sql_function};
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::stored_settings::StoredSettings;
use crate::{audit, changes, manifest_state, rate, wake};
use std::collections::BTreeSet;

statement!(LeaseCountLimited, "group/lease_count_limited.sql", { groups: TEXTARRAYOID });
statement!(GroupKnown, "group/known.sql", { group: TEXTOID });
statement!(
    GroupConfigure, "group/configure.sql",
    {
        name: TEXTOID,
        max_active_jobs: INT4OID,
        priority: INT4OID,
        enabled: BOOLOID,
        max_per_key: INT4OID,
        rate: TEXTOID,
        max_waiting: INT4OID,
        overflow: TEXTOID,
        now: TIMESTAMPTZOID,
        applied: BOOLOID,
        source: TEXTOID,
    }
);
statement!(
    GroupSettled, "group/settled.sql",
    {
        name: TEXTOID,
        max_active_jobs: INT4OID,
        priority: INT4OID,
        enabled: BOOLOID,
        max_per_key: INT4OID,
        rate: TEXTOID,
        max_waiting: INT4OID,
        overflow: TEXTOID,
        source: TEXTOID,
    }
);
row! {
    /// How many jobs may wait in a group, and what happens to those beyond.
    struct Admission {
        max_waiting: Option<i32>,
        overflow: String,
    }
}
statement!(GroupEntry, "group/entry.sql", { group: TEXTOID } -> Admission);
statement!(GroupAdmit, "group/admit.sql", { group: TEXTOID });
statement!(GroupForget, "group/forget.sql", { name: TEXTOID });

/// The values of `overflow`, the default first.
pub(crate) const OVERFLOW: [&str; 3] = ["reject", "drop_newest", "drop_oldest"];

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
        rate: call.optional_text(5, "rate")?,
        max_waiting: call.optional_within(6, "max_waiting", 0, i32::MAX)?,
        overflow: one_of(call.optional_text(7, "overflow")?, "overflow", &OVERFLOW)?,
        applied: false,
        source: None,
    };
    spi::connected(|spi| {
        lock_entries(spi, [&settings].into_iter());
        lock_all([settings.name.as_str()]);
        // A group of older jobs can still be resumed, whatever its name.
        new_name(settings.name.clone(), "name").or_else(|error| {
            let known = is_known(spi, &settings.name);
            known.then(String::new).ok_or(error)
        })?;
        settings.require_rate(spi)?;
        let before = StoredSettings::of_group(spi, &settings.name);
        store(spi, &settings, Timestamp::now());
        let difference = before.difference(&StoredSettings::of_group(spi, &settings.name));
        let (kind, name) = (audit::Kind::Group, &settings.name);
        audit::record_change(spi, "configure", kind, name, &difference);
        count(spi, &[&settings]);
        unpark(spi, &parked(spi, &[&settings]));
        Ok(())
    })
}

/// Settings of a group; `None` keeps the stored value.
pub(crate) struct Settings {
    pub(crate) name: String,
    /// 0 is no limit.
    pub(crate) max_active_jobs: Option<i32>,
    pub(crate) priority: Option<i32>,
    pub(crate) enabled: Option<bool>,
    pub(crate) max_per_key: Option<i32>,
    /// Empty is no rate.
    pub(crate) rate: Option<String>,
    /// 0 is no limit.
    pub(crate) max_waiting: Option<i32>,
    pub(crate) overflow: Option<String>,
    /// They come from `trax.apply`, which may prune groups that it created.
    pub(crate) applied: bool,
    /// The source of their document.
    pub(crate) source: Option<String>,
}

impl Settings {
    /// Returns the settings of a group that was never configured.
    pub(crate) fn none(name: String) -> Self {
        Self {
            name,
            max_active_jobs: Some(0),
            priority: Some(0),
            enabled: Some(true),
            max_per_key: Some(1),
            rate: Some(String::new()),
            max_waiting: Some(0),
            overflow: Some(OVERFLOW[0].to_owned()),
            applied: false,
            source: None,
        }
    }
}

/// Waits until no claim of these groups is under way, and keeps new ones from beginning. Several
/// groups must be locked in one call.
pub(crate) fn lock_all<'a>(names: impl IntoIterator<Item = &'a str>) {
    let names: BTreeSet<&str> = names.into_iter().collect();
    if !names.is_empty() {
        Lock::AllGroups.take(Mode::Part);
    }
    for name in names {
        Lock::Group(name).take(Mode::Alone);
    }
}

/// Waits for the calls that queue jobs into these groups under a limit of waiting jobs that is to
/// change, and keeps new ones from beginning. Several groups must be locked in one call, before
/// [`lock_all`]: claims go on while this waits for a producer.
pub(crate) fn lock_entries<'a>(spi: &Spi, groups: impl Iterator<Item = &'a Settings>) {
    let names: BTreeSet<&str> = groups
        .filter(|settings| settings.changes(&entry(spi, &settings.name)))
        .map(|settings| settings.name.as_str())
        .collect();
    for name in names {
        Lock::Waiting(name).take(Mode::Alone);
    }
}

/// Returns how many jobs may wait in a group now.
fn entry(spi: &Spi, name: &str) -> Admission {
    let stored = spi.query_latest(GroupEntry { group: arg(name) });
    stored.first().unwrap_or_else(|| Admission {
        max_waiting: None,
        overflow: OVERFLOW[0].to_owned(),
    })
}

impl Settings {
    fn changes(&self, stored: &Admission) -> bool {
        let limit = |limit: i32| (limit > 0).then_some(limit);
        self.max_waiting
            .is_some_and(|wanted| limit(wanted) != stored.max_waiting)
            || self
                .overflow
                .as_ref()
                .is_some_and(|wanted| *wanted != stored.overflow)
    }

    /// Returns an error if the rate does not exist; until the transaction ends, one that does
    /// stays.
    pub(crate) fn require_rate(&self, spi: &Spi) -> Result<()> {
        match self.rate.as_deref() {
            None | Some("") => Ok(()),
            Some(rate) => rate::require(spi, rate),
        }
    }

    /// Returns whether the group has them already.
    pub(crate) fn are_stored(&self, spi: &Spi) -> bool {
        let settled = GroupSettled {
            name: arg(self.name.as_str()),
            max_active_jobs: self.max_active_jobs.and_then(arg),
            priority: self.priority.and_then(arg),
            enabled: self.enabled.and_then(arg),
            max_per_key: self.max_per_key.and_then(arg),
            rate: self.rate.as_deref().and_then(arg),
            max_waiting: self.max_waiting.and_then(arg),
            overflow: self.overflow.as_deref().and_then(arg),
            source: self.source.as_deref().and_then(arg),
        };
        spi.query(settled).len() > 0
    }
}

/// Writes the settings of a group that is locked.
pub(crate) fn store(spi: &Spi, settings: &Settings, now: Timestamp) {
    changes::group_configured(&settings.name);
    if settings.enabled.is_some() || settings.priority.is_some() {
        // Jobs of other groups may be the first ones of their rates.
        changes::rates_opened();
    }
    // Its statements that run in the server end, or ready ones may begin.
    wake::mark(wake::SQL);
    let had_limit = entry(spi, &settings.name).max_waiting.is_some();
    spi.execute(GroupConfigure {
        name: arg(settings.name.as_str()),
        max_active_jobs: settings.max_active_jobs.and_then(arg),
        priority: settings.priority.and_then(arg),
        enabled: settings.enabled.and_then(arg),
        max_per_key: settings.max_per_key.and_then(arg),
        rate: settings.rate.as_deref().and_then(arg),
        max_waiting: settings.max_waiting.and_then(arg),
        overflow: settings.overflow.as_deref().and_then(arg),
        now: arg(now),
        applied: arg(settings.applied),
        source: settings.source.as_deref().and_then(arg),
    });
    if settings
        .max_waiting
        .is_some_and(|limit| (limit > 0) != had_limit)
    {
        spi.change_latest(GroupAdmit {
            group: arg(settings.name.as_str()),
        });
    }
}

/// Applies written settings to the jobs of the groups: running jobs count towards a limit, and jobs
/// that wait behind a key may be let in. The leases of all groups that a transaction changes are
/// locked at once.
pub(crate) fn count(spi: &Spi, groups: &[&Settings]) {
    let limited: Vec<String> = groups
        .iter()
        .filter(|settings| settings.max_active_jobs.is_some_and(|limit| limit > 0))
        .map(|settings| settings.name.clone())
        .collect();
    for name in &limited {
        limit::group::void_bound(name);
    }
    if !limited.is_empty() {
        // Running jobs count already: no claim of these groups is under way.
        spi.change_latest(LeaseCountLimited {
            groups: arg(limited),
        });
    }
    for settings in groups {
        if settings.max_per_key.is_some() {
            limit::unblock_group(spi, &settings.name);
        }
    }
}

/// Deletes the settings of a group that has those of [`Settings::none`].
pub(crate) fn forget(spi: &Spi, name: &str) {
    spi.execute(GroupForget { name: arg(name) });
}

/// Returns an error for a group that nothing names.
pub(crate) fn require_known(spi: &Spi, name: &str) -> Result<()> {
    if is_known(spi, name) {
        return Ok(());
    }
    Err(Error::unknown(format!("group \"{name}\" does not exist"))
        .detail("No job, manifest or configuration refers to it.")
        .hint("List the names with: select group_name from trax.lane union select group_name from trax.manifest order by 1"))
}

fn is_known(spi: &Spi, name: &str) -> bool {
    spi.query(GroupKnown { group: arg(name) }).len() > 0
}

/// Returns the manifests that may continue because their group was enabled.
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

/// Lets manifests continue after their group was enabled.
pub(crate) fn unpark(spi: &Spi, manifests: &[i64]) {
    if !manifests.is_empty() {
        manifest_state::unpark_of_groups(spi, manifests);
    }
}
