//! Statements by hand on the tables that are written without statements: a trigger hears of them.

use crate::server::call::sql_function;
use crate::server::spi;
use crate::{changes, instance};
use pgrx::pg_sys;

sql_function!(
    trax_changed_by_hand,
    pg_finfo_trax_changed_by_hand,
    |call| {
        if !spi::is_ours() {
            changes::by_hand();
            // A restore copies rows in; it changes and deletes none.
            if call.is_trigger_of_insert() {
                instance::restored_by_hand()?;
            }
        }
        Ok(pg_sys::Datum::from(0))
    }
);
