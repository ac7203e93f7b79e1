//! The settings that `alter database` and `alter role` have stored for a session.

use super::backend::my_database;
use pgrx::pg_sys;

/// The oid of the catalog `pg_db_role_setting`.
const DB_ROLE_SETTING: u32 = 2964;

unsafe extern "C-unwind" {
    fn ApplySetting(
        snapshot: pg_sys::Snapshot,
        database: pg_sys::Oid,
        role: pg_sys::Oid,
        relation: pg_sys::Relation,
        source: pg_sys::GucSource::Type,
    );
}

/// Applies the stored settings to this session, as connecting does. A setting that is no longer
/// stored keeps its value.
pub(crate) fn apply_stored(role: pg_sys::Oid) {
    let (database, any) = (my_database(), pg_sys::InvalidOid);
    let relation = pg_sys::Oid::from(DB_ROLE_SETTING);
    let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: in a transaction; the function of the server keeps no Rust value, and the relation
    // and the snapshot are released.
    unsafe {
        let relation = pg_sys::table_open(relation, lock);
        let snapshot = pg_sys::GetCatalogSnapshot((*relation).rd_id);
        let snapshot = pg_sys::RegisterSnapshot(snapshot);
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            for (database, role, source) in [
                (database, role, pg_sys::GucSource::PGC_S_DATABASE_USER),
                (any, role, pg_sys::GucSource::PGC_S_USER),
                (database, any, pg_sys::GucSource::PGC_S_DATABASE),
                (any, any, pg_sys::GucSource::PGC_S_GLOBAL),
            ] {
                ApplySetting(snapshot, database, role, relation, source);
            }
        });
        pg_sys::UnregisterSnapshot(snapshot);
        pg_sys::table_close(relation, lock);
    }
}
