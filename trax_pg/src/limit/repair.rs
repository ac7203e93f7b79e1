//! The repair of limits: unblocks jobs whose key or manifest has room, in case an outcome could
//! not.

use crate::changes;
use crate::server::spi::{Column, Query, Spi, arg, row, statement};
use std::sync::{Mutex, PoisonError};

/// Most lanes of keys, and most of manifests, that one pass reads.
const LANES_AT_MOST: i32 = 5000;

row! {
    /// A job that a pass unblocked, if any, and where the pass stopped, after how many lanes.
    struct Repaired<T> {
        lane_id: Option<i64>,
        priority: Option<i16>,
        job_id: Option<i64>,
        reached: T,
        reached_lane: i64,
        looked_at: i32,
    }
}
statement!(
    KeyRepair, "limit/repair.sql" with {
        reason: "'key'",
        shared: "concurrency_key",
        from: "$shared collate \"C\"",
        allowed: "coalesce((
            select g.max_per_key from trax.manifest_group g where g.name = f.group_name
        ), 1)",
    },
    { shared: TEXTOID, lane_id: INT8OID, at_most: INT4OID } -> Repaired<String>
);
statement!(
    ManifestRepair, "limit/repair.sql" with {
        reason: "'manifest'",
        shared: "manifest_id",
        from: "$shared",
        // Jobs outlive a manifest that is unscheduled.
        allowed: "coalesce((
            select m.max_concurrency from trax.manifest m where m.manifest_id = p.manifest_id
        ), 2147483647)",
    },
    { shared: INT8OID, lane_id: INT8OID, at_most: INT4OID } -> Repaired<i64>
);

/// Where this backend's last passes stopped: the key or manifest, and the lane of its jobs.
static REPAIRED_KEYS: Mutex<Option<(String, i64)>> = Mutex::new(None);
static REPAIRED_MANIFESTS: Mutex<Option<(i64, i64)>> = Mutex::new(None);

/// Unblocks the first job in each lane of each key and manifest that has room.
pub(crate) fn repair(spi: &Spi) {
    let at_most = arg(LANES_AT_MOST);
    let keys = |(key, lane)| KeyRepair {
        shared: arg(key),
        lane_id: arg(lane),
        at_most,
    };
    repair_behind(spi, keys, &REPAIRED_KEYS, (String::new(), i64::MIN));
    let manifests = |(id, lane)| ManifestRepair {
        shared: arg(id),
        lane_id: arg(lane),
        at_most,
    };
    repair_behind(spi, manifests, &REPAIRED_MANIFESTS, (0, i64::MIN));
}

/// Continues where the last one stopped, or begins again after the end.
fn repair_behind<T: Column, Q: Query<Row = Repaired<T>>>(
    spi: &Spi,
    behind: impl FnOnce((T, i64)) -> Q,
    reached: &Mutex<Option<(T, i64)>>,
    beginning: (T, i64),
) {
    let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
    let from = reached.take().unwrap_or(beginning);
    for row in spi.query(behind(from)).iter() {
        if let (Some(lane), Some(priority), Some(job)) = (row.lane_id, row.priority, row.job_id) {
            changes::claimable(lane, priority, job);
        }
        let is_full = row.looked_at == LANES_AT_MOST;
        *reached = is_full.then_some((row.reached, row.reached_lane));
    }
}
