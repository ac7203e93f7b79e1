//! Detours of the tables that every job goes through, for `trax.status()`.

use crate::columns::Leased;
use crate::columns::Run;
use crate::columns::Waiting;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi::arg;
use crate::server::table::{detour_of, history_detour};

sql_function!(trax_detours, pg_finfo_trax_detours, |call| {
    let mut rows = call.rows();
    let now = Timestamp::now().0;
    for (table, reason) in [
        ("trax.work_queue", detour_of(Waiting::TABLE, Waiting::ALL)),
        ("trax.lease", detour_of(Leased::TABLE, Leased::ALL)),
        ("trax.run", history_detour(Run::TABLE, Run::ALL, now)),
    ] {
        if let Some(reason) = reason {
            rows.push(&[arg(table), arg(reason)]);
        }
    }
    Ok(rows.end())
});
