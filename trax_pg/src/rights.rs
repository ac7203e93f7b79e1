//! Rights: doing a step as the owner of an object of ours, whoever calls.

use pgrx::pg_sys;

/// Does `work` as a function of `owner` with `security definer` and a fixed `search_path` would.
pub(crate) fn with_rights_of<T>(owner: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: in a transaction; an error leaves user and settings to its abort, as the server's own functions do.
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
