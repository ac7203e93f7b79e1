//! Time zones as the server knows them: its own zone data answers, also after an update.

use crate::error::{Error, Result};
use crate::zone_data;
use pgrx::pg_sys;
use std::ffi::CString;
use trax_schedule::Zone;

/// Names of the zone data that hold digits; any other name with digits is a POSIX rule, not a place.
const NAMES_WITH_DIGITS: [&str; 7] = [
    "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "GMT0", "GMT+0", "GMT-0",
];

/// A zone of the server's data. The server keeps what it has loaded until the backend ends.
pub(crate) struct ServerZone(*mut pg_sys::pg_tz);

impl ServerZone {
    /// The zone of an IANA name, or 22023.
    pub(crate) fn named(name: &str) -> Result<Self> {
        zone_data::note();
        let unknown = || {
            Error::invalid(format!("time zone \"{name}\" is not recognized"))
                .detail("It is not a name of the server's time zone data.")
                .hint("Give an IANA name such as 'Europe/Berlin' or 'UTC'; list them with: select name from pg_timezone_names")
        };
        let posix_rule = name.contains(|c: char| c.is_ascii_digit() || "<>,".contains(c))
            && !name.starts_with("Etc/GMT")
            && !NAMES_WITH_DIGITS.contains(&name);
        if posix_rule {
            return Err(unknown());
        }
        let text = CString::new(name).map_err(|_| unknown())?;
        // SAFETY: the server copies the text, and what it returns lives as long as the backend.
        let zone = unsafe { pg_sys::pg_tzset(text.as_ptr()) };
        if zone.is_null() {
            Err(unknown())
        } else {
            Ok(Self(zone))
        }
    }
}

impl Zone for ServerZone {
    fn offset_at(&self, utc_seconds: i64) -> i32 {
        // SAFETY: the zone is one that the server gave; the result is its static buffer, read at once.
        unsafe {
            let local = pg_sys::pg_localtime(&raw const utc_seconds, self.0);
            // Null is a time beyond its range, where no zone has rules.
            if local.is_null() {
                0
            } else {
                (*local).tm_gmtoff as i32
            }
        }
    }
}
