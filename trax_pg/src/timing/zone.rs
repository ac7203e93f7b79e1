//! Time zones as the server knows them: its own zone data answers, also after an update.
//!
//! Words: the *fingerprint* of the data is when its directory was last changed. A backend keeps the
//! zones it has loaded until it ends; it is *stale* when the data has changed since.

use crate::error::{Error, Result};
use pgrx::pg_sys;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;
use trax_schedule::Zone;

/// Names of the zone data that hold digits; any other name with digits is a POSIX rule, not a
/// place.
const NAMES_WITH_DIGITS: [&str; 7] = [
    "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "GMT0", "GMT+0", "GMT-0",
];

/// Where servers that are built to use the system's data find it.
const SYSTEM_DATA: &str = "/usr/share/zoneinfo";

/// The fingerprint when this backend first asked for a zone.
static LOADED: OnceLock<Option<String>> = OnceLock::new();

/// A zone of the server's data. The server keeps what it has loaded until the backend ends.
pub(crate) struct ServerZone(*mut pg_sys::pg_tz);

impl ServerZone {
    /// Returns the zone of an IANA name, or 22023.
    pub(crate) fn named(name: &str) -> Result<Self> {
        remember_fingerprint();
        let unknown = || {
            Error::invalid(format!("time zone \"{name}\" is not recognized"))
                .detail("It is not a name of the server's time zone data.")
                .hint("Specify an IANA name such as 'Europe/Berlin' or 'UTC'; list them with: select name from pg_timezone_names")
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
        // SAFETY: the zone is one that the server gave; the result is its static buffer, read at
        // once.
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

/// Remembers which data this backend reads; before it loads a zone.
pub(crate) fn remember_fingerprint() {
    LOADED.get_or_init(fingerprint);
}

/// Returns whether the data has changed since this backend read it.
pub(crate) fn is_stale() -> bool {
    // Data that cannot be found now is being replaced: what was read holds until it is there.
    let Some(current) = fingerprint() else {
        return false;
    };
    LOADED
        .get()
        .is_some_and(|loaded| loaded.as_ref() != Some(&current))
}

/// Returns when the data was last changed, as text; `None` where it cannot be found.
pub(crate) fn fingerprint() -> Option<String> {
    let directory = directory();
    let changed = |path: &Path| {
        let time = path.metadata().and_then(|data| data.modified()).ok()?;
        Some(time.duration_since(UNIX_EPOCH).ok()?.as_nanos())
    };
    // A package manager replaces files: their directory changes. Some write in place.
    let times = [
        changed(&directory)?,
        changed(&directory.join("tzdata.zi")).unwrap_or(0),
    ];
    Some(format!("{}:{}", times[0], times[1]))
}

fn directory() -> PathBuf {
    let mut share = [0 as std::ffi::c_char; pg_sys::MAXPGPATH as usize];
    // SAFETY: the server fills at most MAXPGPATH bytes and ends them with a zero.
    let share = unsafe {
        pg_sys::get_share_path((&raw const pg_sys::my_exec_path).cast(), share.as_mut_ptr());
        CStr::from_ptr(share.as_ptr())
            .to_string_lossy()
            .into_owned()
    };
    let own = Path::new(&share).join("timezone");
    if own.is_dir() {
        own
    } else {
        PathBuf::from(SYSTEM_DATA)
    }
}
