//! Direct writes: reports for `trax.status()` which of the tables that every job goes through are
//! written by statements instead, and why.

use crate::columns::Leased;
use crate::columns::Run;
use crate::columns::Waiting;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi::arg;
use crate::server::table::{Write, history_obstacle, obstacle_of};

sql_function!(
    trax_direct_write_obstacles,
    pg_finfo_trax_direct_write_obstacles,
    |call| {
        let mut rows = call.rows();
        let now = Timestamp::now().0;
        // Waiting jobs are always updated by statements.
        let queue = obstacle_of(
            Waiting::TABLE,
            Waiting::ALL,
            &[Write::Insert, Write::Delete],
        );
        let leases = obstacle_of(
            Leased::TABLE,
            Leased::ALL,
            &[Write::Insert, Write::Update, Write::Delete],
        );
        let history = history_obstacle(Run::TABLE, Run::ALL, now);
        for (table, reason) in [
            ("trax.work_queue", queue),
            ("trax.lease", leases),
            ("trax.run", history),
        ] {
            if let Some(reason) = reason {
                rows.push(&[arg(table), arg(reason)]);
            }
        }
        Ok(rows.end())
    }
);
