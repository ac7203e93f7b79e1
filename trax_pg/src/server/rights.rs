//! Rights: runs a step as the owner of an object of the extension, for any caller.

use crate::server::call::Call;
use pgrx::{pg_guard, pg_sys};
use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The caller of a function of the extension, and the function.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) user: pg_sys::Oid,
    pub(crate) function: pg_sys::Oid,
}

/// Runs a call with the rights of the function's owner, and passes on the caller.
///
/// `security definer` does the same without reporting the caller: inside it only the session's role
/// is known, which differs when another role's view, trigger or function makes the call.
pub(crate) fn as_owner<T>(call: &Call, work: impl FnOnce(Caller) -> T) -> T {
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    let function = call.function();
    let owner = owner_of(function);
    // SAFETY: in a transaction; an error leaves the user to its abort, as the server's own
    // functions do.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let owned = context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
        pg_sys::SetUserIdAndSecContext(owner, owned);
        let result = work(Caller { user, function });
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

/// How often a right that a session has looked up may have changed: functions, roles, memberships.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static LISTEN: Once = Once::new();

thread_local! {
    /// The owners of functions, and the change count at which they were read.
    static OWNERS: RefCell<(u64, Vec<(pg_sys::Oid, pg_sys::Oid)>)> = RefCell::default();
}

#[pg_guard]
unsafe extern "C-unwind" fn changed(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many changes this session has seen. A result that is read after this call holds
/// while the number stays the same.
pub(crate) fn changes() -> u64 {
    LISTEN.call_once(|| {
        use pg_sys::SysCacheIdentifier as Cache;
        for cache in [
            Cache::PROCOID,
            Cache::AUTHOID,
            Cache::AUTHMEMMEMROLE,
            Cache::AUTHMEMROLEMEM,
        ] {
            // SAFETY: the callback has the right signature and lives as long as the library.
            unsafe {
                pg_sys::CacheRegisterSyscacheCallback(
                    cache as i32,
                    Some(changed),
                    pg_sys::Datum::from(0),
                );
            }
        }
    });
    CHANGES.load(Ordering::Relaxed)
}

fn owner_of(function: pg_sys::Oid) -> pg_sys::Oid {
    let changes = changes();
    OWNERS.with_borrow_mut(|(known, owners)| {
        if *known != changes {
            owners.clear();
            *known = changes;
        }
        if let Some((_, owner)) = owners.iter().find(|(oid, _)| *oid == function) {
            return *owner;
        }
        let owner = pgrx::pg_catalog::pg_proc::PgProc::new(function)
            .expect("a function that runs is in the catalog")
            .proowner();
        owners.push((function, owner));
        owner
    })
}

/// Runs `work` as a function of `owner` with `security definer` and a fixed `search_path` would.
pub(crate) fn with_rights_of<T>(owner: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: in a transaction; an error leaves user and settings to its abort, as the server's own
    // functions do.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let level = pg_sys::NewGUCNestLevel();
        let owned = context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
        pg_sys::SetUserIdAndSecContext(owner, owned);
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        let result = work();
        pg_sys::AtEOXact_GUC(true, level);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

/// Returns the oid of a role; `None` when no role has this name.
pub(crate) fn role_oid(name: &str) -> Option<pg_sys::Oid> {
    let name = CString::new(name).expect("a text of the server has no zero byte");
    // SAFETY: a lookup in a transaction.
    let oid = unsafe { pg_sys::get_role_oid(name.as_ptr(), true) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Returns whether a role with this oid exists.
pub(crate) fn is_role(oid: pg_sys::Oid) -> bool {
    // SAFETY: a lookup in a transaction; null when there is none.
    unsafe { !pg_sys::GetUserNameFromId(oid, true).is_null() }
}

/// Returns whether a role may connect to this database.
pub(crate) fn may_connect(role: pg_sys::Oid) -> bool {
    let cache = pg_sys::SysCacheIdentifier::AUTHOID as i32;
    // SAFETY: lookups in a transaction; the tuple, a row of pg_authid, is read before it is
    // released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(role));
        if tuple.is_null() {
            return false;
        }
        let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_authid>();
        let may_log_in = row.rolcanlogin && (row.rolsuper || row.rolconnlimit != 0);
        pg_sys::ReleaseSysCache(tuple);
        let database = pg_sys::MyDatabaseId;
        #[cfg(feature = "pg15")]
        let found = pg_sys::pg_database_aclcheck(database, role, pg_sys::ACL_CONNECT);
        #[cfg(not(feature = "pg15"))]
        let found = pg_sys::object_aclcheck(
            pg_sys::DatabaseRelationId,
            database,
            role,
            pg_sys::ACL_CONNECT.into(),
        );
        may_log_in && found == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Returns whether a role may act as another one.
pub(crate) fn is_member(role: pg_sys::Oid, of: pg_sys::Oid) -> bool {
    // SAFETY: catalog lookups in a transaction.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::is_member_of_role(role, of);
        #[cfg(not(feature = "pg15"))]
        return pg_sys::member_can_set_role(role, of);
    }
}
