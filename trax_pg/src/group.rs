//! Groups: named sets of jobs that share a priority, a switch and a limit.
//!
//! A claim holds a shared lock on each group it takes jobs from; configuring a group takes it exclusively. So when
//! a pause has committed, no claim that began before it can still commit. The locks live in memory only: a row
//! lock would write WAL for every claim.

use crate::clock::Timestamp;
use crate::entry::{Call, sql_function};
use crate::error::Result;
use crate::spi::{self, Spi, arg, statement};
use pgrx::pg_sys;

/// First key of our advisory locks: "trax" in ASCII.
pub(crate) const LOCK_CLASS: i32 = 0x7472_6178;
/// Advisory locks of SQL functions have 1 and 2 here: no client takes ours by accident or in malice.
const LOCK_SPACE: u16 = 0x7472;
pub(crate) const DEFAULT_GROUP: &str = "default";
pub(crate) const HIGHEST_PRIORITY: i32 = 31;

statement!(GROUP_ENABLED, "group_enabled.sql", TEXTOID);
statement!(
    GROUP_CONFIGURE,
    "group_configure.sql",
    TEXTOID,
    INT4OID,
    INT4OID,
    BOOLOID,
    INT4OID,
    TIMESTAMPTZOID
);

sql_function!(
    trax_configure_group,
    pg_finfo_trax_configure_group,
    |call| {
        configure(call)?;
        Ok(call.null())
    }
);

fn configure(call: &Call) -> Result<()> {
    let name = call.name(0, "name")?;
    let max_active_jobs = call.optional_within(1, "max_active_jobs", 0, i32::MAX)?;
    let priority = call.optional_within(2, "priority", 0, HIGHEST_PRIORITY)?;
    let enabled = call.optional::<bool>(3);
    let max_per_key = call.optional_within(4, "max_per_key", 1, i32::MAX)?;
    lock(&name, pg_sys::ExclusiveLock as i32, false);
    spi::connected(|spi| {
        spi.execute(
            &GROUP_CONFIGURE,
            &[
                arg(name.as_str()),
                max_active_jobs.and_then(arg),
                priority.and_then(arg),
                enabled.and_then(arg),
                max_per_key.and_then(arg),
                arg(Timestamp::now()),
            ],
        );
        if enabled == Some(true) {
            crate::manifest_state::unpark_group(spi, &name);
        }
        Ok(())
    })
}

/// Whether a claim may take jobs of this group now. True holds until the transaction ends.
pub(crate) fn admits_claim(spi: &Spi, group: &str) -> bool {
    // The lock comes first: only a snapshot taken under it is sure to see a pause that has committed.
    lock(group, pg_sys::ShareLock as i32, true)
        && spi
            .query_latest(&GROUP_ENABLED, &[arg(group)])
            .first()
            .is_none_or(|row| row.must::<bool>(1))
}

/// Whether this group is switched off. True holds until the transaction ends.
pub(crate) fn stays_disabled(spi: &Spi, group: &str) -> bool {
    lock(group, pg_sys::ShareLock as i32, true)
        && spi
            .query_latest(&GROUP_ENABLED, &[arg(group)])
            .first()
            .is_some_and(|row| !row.must::<bool>(1))
}

/// Takes the group's lock until the transaction ends; false when another holds it and `only_if_free`.
fn lock(group: &str, mode: i32, only_if_free: bool) -> bool {
    // Key 0 is the cycle's.
    let key = (crate::work_queue::name_hash(&[group]) as u32).max(1);
    advisory_lock(key, mode, only_if_free)
}

/// Takes the advisory lock (`LOCK_CLASS`, `key`) until the transaction ends.
pub(crate) fn advisory_lock(key: u32, mode: i32, only_if_free: bool) -> bool {
    // SAFETY: reads the id of this backend's database.
    let database = unsafe { pg_sys::MyDatabaseId };
    let tag = pg_sys::LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: LOCK_CLASS as u32,
        locktag_field3: key,
        locktag_field4: LOCK_SPACE,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    };
    // SAFETY: a complete tag; the lock belongs to the transaction and ends with it.
    let outcome = unsafe { pg_sys::LockAcquire(&raw const tag, mode, false, only_if_free) };
    outcome != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}
