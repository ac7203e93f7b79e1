//! Time zones of the server: uses its own zone data, also after an update.
//!
//! Words: the *fingerprint* of the data is the time of the last change of its directory. A backend
//! keeps the zones it has loaded until it ends; it is *stale* when the data has changed since.

use crate::error::{Error, Result};
use pgrx::pg_sys;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;
use trax_schedule::Zone;

/// Names of the zone data with digits and without lower-case letters; any other such name is a
/// POSIX rule, not a place.
const NAMES_WITH_DIGITS: [&str; 7] = [
    "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "GMT0", "GMT+0", "GMT-0",
];

/// Files of the zone data that name no place: `localtime` and `posixrules` depend on the machine.
const NO_PLACES: [&str; 3] = ["localtime", "posixrules", "Factory"];

const UTC: &str = "UTC";

const HINT: &str = "Specify an IANA name such as 'Europe/Berlin' or 'UTC'; \
    list them with: select name from pg_timezone_names";

/// The path of the data for servers that are built to use the system's.
const SYSTEM_DATA: &str = "/usr/share/zoneinfo";

/// The fingerprint when this backend first asked for a zone.
static LOADED: OnceLock<Option<String>> = OnceLock::new();

/// A zone of the server's data. The server keeps loaded zones until the backend ends.
pub(crate) struct ServerZone(*mut pg_sys::pg_tz);

impl ServerZone {
    /// Returns the zone of a name in `pg_timezone_names`, in upper or lower case, or 22023.
    pub(crate) fn named(name: &str) -> Result<Self> {
        remember_fingerprint();
        if name == UTC {
            // The same zone, and the only one that the server has while its data is missing.
            return load("GMT").ok_or_else(|| unknown(name));
        }
        let zone = load(name).ok_or_else(|| unknown(name))?;
        let known = zone.name();
        // A rule in POSIX's form is stored in upper case, and its offset has digits.
        let is_rule = known.contains(|c: char| c.is_ascii_digit())
            && !known.contains(|c: char| c.is_ascii_lowercase())
            && !NAMES_WITH_DIGITS.contains(&known);
        let place = known.strip_prefix("posix/").unwrap_or(known);
        if is_rule || !known.eq_ignore_ascii_case(name) || NO_PLACES.contains(&place) {
            return Err(unknown(name));
        }
        // SAFETY: the zone is one that the server returned.
        if unsafe { pg_sys::pg_tz_acceptable(zone.0) } {
            Ok(zone)
        } else {
            Err(
                Error::invalid(format!("time zone \"{name}\" appears to use leap seconds"))
                    .detail("PostgreSQL does not support leap seconds.")
                    .hint(HINT),
            )
        }
    }

    /// Does the same for a name that is about to be stored, which must be spelled as in the data.
    pub(crate) fn spelled(name: &str) -> Result<Self> {
        let zone = Self::named(name)?;
        match zone.name() {
            known if known == name || name == UTC => Ok(zone),
            known => Err(unknown(name).hint(format!("Specify '{known}'."))),
        }
    }

    /// Returns its name as spelled in the data.
    fn name(&self) -> &str {
        // SAFETY: the zone is one that the server returned; its name lives as long as the backend.
        let name = unsafe { CStr::from_ptr(pg_sys::pg_get_timezone_name(self.0)) };
        name.to_str().unwrap_or_default()
    }
}

fn load(name: &str) -> Option<ServerZone> {
    let text = CString::new(name).ok()?;
    // SAFETY: the server copies the text, and the zone lives as long as the backend.
    let zone = unsafe { pg_sys::pg_tzset(text.as_ptr()) };
    (!zone.is_null()).then_some(ServerZone(zone))
}

fn unknown(name: &str) -> Error {
    Error::invalid(format!("time zone \"{name}\" is not recognized"))
        .detail("It is not a name of the server's time zone data.")
        .hint(HINT)
}

impl Zone for ServerZone {
    fn offset_at(&self, utc_seconds: i64) -> i32 {
        // SAFETY: the zone is one that the server returned; the result is its static buffer, read
        // at once.
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

/// Records which data this backend reads; call it before a zone is loaded.
pub(crate) fn remember_fingerprint() {
    LOADED.get_or_init(fingerprint);
}

/// Returns whether the data has changed since this backend read it.
pub(crate) fn is_stale() -> bool {
    // Data that cannot be found now is being replaced: the loaded zones hold until it exists again.
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
    // A package manager replaces files, which changes their directory; some write in place.
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
