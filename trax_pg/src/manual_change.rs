//! Manual changes: statements of users on tables that trax writes without statements.
//!
//! A statement trigger on those tables calls this, which drops shared memory's data on the rows.

use crate::server::call::sql_function;
use crate::server::spi;
use crate::{changes, instance};
use pgrx::pg_sys;

sql_function!(
    trax_changed_manually,
    pg_finfo_trax_changed_manually,
    |call| {
        if !spi::is_ours() {
            changes::manual_change();
            // A restore copies rows in; it changes and deletes none.
            if call.is_trigger_of_insert() {
                instance::mark_as_copy_if_restoring()?;
            }
        }
        Ok(pg_sys::Datum::from(0))
    }
);
