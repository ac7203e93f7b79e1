//! Settings that are stored while a process connects.
//!
//! A process takes the settings of its database and role when it connects, and reads the stored
//! ones a moment later, to detect changes. A change in between would be missed: the session does
//! not have it, and the next comparison starts from it.

use crate::server::backend::my_database;
use crate::server::spi::{arg, row, statement};
use crate::server::{session_settings, spi};
use pgrx::pg_sys;

row! {
    #[derive(PartialEq)]
    struct SessionSettings {
        settings: String,
        /// Whether any of them is no longer stored.
        has_old: bool,
    }
}
statement!(
    SettingsHere, "background/settings_here.sql",
    { role: OIDOID, database: OIDOID } -> SessionSettings
);

/// Returns whether this session differs from the stored settings and so must connect again. Call it
/// after the stored settings were read, in the same transaction.
///
/// Applies the stored settings once more, as connecting does; `override_them` then repeats the
/// process's own changes since it connected.
///
/// Takes 5 ms, once in the life of a process.
pub(super) fn any(role: pg_sys::Oid, override_them: impl FnOnce()) -> bool {
    let before = settings_here(role);
    session_settings::apply_stored(role);
    override_them();
    let after = settings_here(role);
    before != after || after.is_some_and(|after| after.has_old)
}

fn settings_here(role: pg_sys::Oid) -> Option<SessionSettings> {
    let found = spi::connected_anyhow(|spi| {
        let query = SettingsHere {
            role: arg(role),
            database: arg(my_database()),
        };
        Ok(spi.query(query).first())
    });
    found.unwrap_or_else(|error| error.raise())
}
