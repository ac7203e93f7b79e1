//! Settings that are stored while a process connects.
//!
//! A process takes the settings of its database and role when it connects, and reads them again
//! later to see that they have changed. What is stored between the two is neither in the session
//! nor seen as a change, and would count only after the next one.

use crate::server::backend::my_database;
use crate::server::spi::{arg, row, statement};
use crate::server::{session_settings, spi};
use pgrx::pg_sys;

row! {
    #[derive(PartialEq)]
    struct SessionSettings {
        settings: String,
        /// One of them is no longer stored.
        has_old: bool,
    }
}
statement!(
    SettingsHere, "background/settings_here.sql",
    { role: OIDOID, database: OIDOID } -> SessionSettings
);

/// Returns whether this session lacks what is stored for it now: it has to connect again. For the
/// transaction that has read the stored settings, after it has. The session then has the stored
/// settings once more, as after connecting; `override_them` does to them what was done then.
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
