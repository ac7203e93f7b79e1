//! Versions: all databases of a server share one library, and each has its own version of the SQL.
//!
//! Holds: no function of the extension runs with the SQL of another version. Both `alter extension`
//! and `create extension` write the version before they run their script, and each script creates
//! functions: a session's cached version holds until some function changes.

use crate::error::Error;
use pgrx::datum::FromDatum;
use pgrx::{pg_guard, pg_sys};
use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The version of this library, and of its SQL.
pub(crate) const LIBRARY: &str = env!("CARGO_PKG_VERSION");

const EXTENSIONS: u32 = 3079;
const EXTENSIONS_BY_OID: u32 = 3080;

/// Whether the installed version was that of the library at the last look.
static IS_OURS: AtomicBool = AtomicBool::new(false);
static LISTEN: Once = Once::new();

/// Raises 55000 when this process has already loaded another file of trax, for example after
/// `dynamic_library_path` changed: shared memory, settings and hooks belong to that file.
pub(crate) fn refuse_second_library() {
    const HERE: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    // SAFETY: the variable lives as long as the process; it is null or a text of a loaded library,
    // and libraries are never unloaded.
    let first = unsafe {
        let first = pg_sys::find_rendezvous_variable(c"trax".as_ptr());
        if (*first).is_null() || *first == HERE.as_ptr().cast_mut().cast() {
            *first = HERE.as_ptr().cast_mut().cast();
            return;
        }
        CStr::from_ptr((*first).cast())
    };
    Error::wrong_state("this server has loaded another file of trax".to_owned())
        .detail(format!(
            "The loaded file is version {}, the other file is version {LIBRARY}.",
            first.to_string_lossy()
        ))
        .hint("Restart PostgreSQL, which loads one of them only.")
        .raise()
}

/// Raises 55000 unless the SQL of this database has the library's version.
#[inline]
pub(crate) fn require() {
    if !IS_OURS.load(Ordering::Relaxed) {
        look();
    }
}

#[cold]
fn look() {
    LISTEN.call_once(|| {
        let functions = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let none = pg_sys::Datum::from(0);
        // SAFETY: the callback has the right signature and lives as long as the library.
        unsafe { pg_sys::CacheRegisterSyscacheCallback(functions, Some(function_changed), none) };
    });
    match installed() {
        Some(version) if version != LIBRARY => refuse(&version),
        None => Error::wrong_state("the extension trax is not installed in this database".to_owned())
            .detail("A statement has dropped it. A SQL job that drops it is rolled back, because its end could not be recorded.")
            .hint("Drop the extension in a session: drop extension trax")
            .raise(),
        Some(_) => IS_OURS.store(true, Ordering::Relaxed),
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn function_changed(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    IS_OURS.store(false, Ordering::Relaxed);
}

fn refuse(installed: &str) -> ! {
    let error = Error::wrong_state(format!(
        "trax {installed} is installed here, the library is {LIBRARY}"
    ));
    if parts(installed) < parts(LIBRARY) {
        error
            .detail("The functions and tables of this database are of the older version.")
            .hint("Type: alter extension trax update")
    } else {
        error
            .detail("The server has loaded the older library.")
            .hint("Restart PostgreSQL, after installing the library of that version.")
    }
    .raise()
}

/// Returns the parts of a version, for comparing.
fn parts(version: &str) -> Vec<u64> {
    version
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect()
}

/// Returns whether the SQL of this database has the library's version, by the catalog.
pub(crate) fn is_ours() -> bool {
    installed().is_some_and(|version| version == LIBRARY)
}

/// Returns the version of the SQL of this database; `None` without the extension.
pub(crate) fn installed() -> Option<String> {
    // SAFETY: a scan of a catalog inside a transaction; the version, a text that is never null, is
    // copied before the scan ends.
    unsafe {
        let extension = pg_sys::get_extension_oid(c"trax".as_ptr(), true);
        let catalog = pg_sys::Oid::from(EXTENSIONS);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &raw mut key,
            pg_sys::get_attnum(catalog, c"oid".as_ptr()),
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from(pg_sys::F_OIDEQ),
            pg_sys::Datum::from(extension),
        );
        let relation = pg_sys::table_open(catalog, pg_sys::AccessShareLock as i32);
        let by_oid = pg_sys::Oid::from(EXTENSIONS_BY_OID);
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(relation, by_oid, true, none, 1, &raw mut key);
        let row = pg_sys::systable_getnext(scan);
        let version = (!row.is_null()).then(|| {
            let mut is_null = false;
            let column = pg_sys::get_attnum(catalog, c"extversion".as_ptr());
            let shape = (*relation).rd_att;
            let value = pg_sys::heap_getattr(row, i32::from(column), shape, &mut is_null);
            String::from_datum(value, is_null).expect("an extension has a version")
        });
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        version
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(parts("0.2.0") < parts("0.10.0"));
        assert!(parts("0.2.0") < parts("1.0"));
        assert!(parts("0.2.0") == parts("0.2.0"));
    }
}
