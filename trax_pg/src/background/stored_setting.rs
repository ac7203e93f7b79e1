//! What `alter database` and `alter role` have stored for the scheduler's process.
//!
//! The server puts it into effect when the process connects, and says nothing of what changes
//! until the first look. So the first look puts it into effect again, and finds what is in effect
//! and stored no more; each look after it compares one text.

use crate::server::backend::my_database;
use crate::server::spi;
use crate::server::spi::statement;
use pgrx::pg_sys;
use pgrx::pg_sys::GucSource::{
    PGC_S_DATABASE, PGC_S_DATABASE_USER, PGC_S_GLOBAL, PGC_S_USER, Type as Source,
};
use pgrx::pg_sys::{InvalidOid, Oid, Relation, Snapshot};

statement!(SettingsStored, "background/settings_stored.sql" -> Option<String>);
statement!(SettingRemoved, "background/setting_removed.sql" -> bool);

/// `pg_db_role_setting`.
const SETTINGS: u32 = 2964;

unsafe extern "C-unwind" {
    fn ApplySetting(
        snapshot: Snapshot,
        database: Oid,
        role: Oid,
        settings: Relation,
        source: Source,
    );
}

/// Returns what is stored now, and in effect from now on; none when something is in effect that
/// only a new process is without.
pub(super) fn begin() -> Option<String> {
    // Read first: what changes from here on, the next look sees.
    let stored = stored();
    apply();
    let removed = spi::connected_anyhow(|spi| Ok(spi.query(SettingRemoved).first()));
    let removed = removed.unwrap_or_else(|error| error.raise());
    (removed != Some(true)).then_some(stored)
}

/// Returns what is stored, as one text to compare.
pub(super) fn stored() -> String {
    let text = spi::connected_anyhow(|spi| Ok(spi.query(SettingsStored).first().flatten()));
    text.unwrap_or_else(|error| error.raise())
        .unwrap_or_default()
}

/// Does what the server does for a process that connects.
fn apply() {
    // SAFETY: functions of the server, called in a transaction: the relation is open, and the
    // snapshot registered, while they need them; an error ends the process.
    unsafe {
        let role = pg_sys::GetSessionUserId();
        let scopes = [
            (my_database(), role, PGC_S_DATABASE_USER),
            (InvalidOid, role, PGC_S_USER),
            (my_database(), InvalidOid, PGC_S_DATABASE),
            (InvalidOid, InvalidOid, PGC_S_GLOBAL),
        ];
        let settings = Oid::from(SETTINGS);
        let relation = pg_sys::table_open(settings, pg_sys::AccessShareLock as i32);
        let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
        for (database, role, source) in scopes {
            pg_sys::ffi::pg_guard_ffi_boundary(|| {
                ApplySetting(snapshot, database, role, relation, source);
            });
        }
        pg_sys::UnregisterSnapshot(snapshot);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
}
