//! The sweep: unblocks jobs whose key or manifest has room, in case an outcome failed to.

use crate::changes;
use crate::server::spi::{Column, Query, Spi, arg, row, statement};
use std::sync::{Mutex, PoisonError};

/// Most lanes of keys, and most of manifests, that one sweep reads.
const SWEEP_AT_MOST: i32 = 5000;

row! {
    /// A job that a sweep unblocked, if any, and where the sweep stopped, after how many lanes.
    struct Swept<T> {
        lane_id: Option<i64>,
        priority: Option<i16>,
        job_id: Option<i64>,
        reached: T,
        reached_lane: i64,
        looked_at: i32,
    }
}
statement!(
    KeySweep, "limit/sweep.sql" with {
        reason: "'key'",
        shared: "concurrency_key",
        from: "$shared collate \"C\"",
        allowed: "coalesce((
            select g.max_per_key from trax.manifest_group g where g.name = f.group_name
        ), 1)",
    },
    { shared: TEXTOID, lane_id: INT8OID, at_most: INT4OID } -> Swept<String>
);
statement!(
    ManifestSweep, "limit/sweep.sql" with {
        reason: "'manifest'",
        shared: "manifest_id",
        from: "$shared",
        // Jobs outlive a manifest that is unscheduled.
        allowed: "coalesce((
            select m.max_concurrency from trax.manifest m where m.manifest_id = p.manifest_id
        ), 2147483647)",
    },
    { shared: INT8OID, lane_id: INT8OID, at_most: INT4OID } -> Swept<i64>
);

/// Where this backend's last sweeps stopped: the key or manifest, and the lane of its jobs.
static SWEPT_KEYS: Mutex<Option<(String, i64)>> = Mutex::new(None);
static SWEPT_MANIFESTS: Mutex<Option<(i64, i64)>> = Mutex::new(None);

/// Unblocks the first job in each lane of each key and manifest that has room.
pub(crate) fn sweep(spi: &Spi) {
    let at_most = arg(SWEEP_AT_MOST);
    let keys = |(key, lane)| KeySweep {
        shared: arg(key),
        lane_id: arg(lane),
        at_most,
    };
    sweep_on(spi, keys, &SWEPT_KEYS, (String::new(), i64::MIN));
    let manifests = |(id, lane)| ManifestSweep {
        shared: arg(id),
        lane_id: arg(lane),
        at_most,
    };
    sweep_on(spi, manifests, &SWEPT_MANIFESTS, (0, i64::MIN));
}

/// Continues the sweep where the last one stopped, or begins again after the end.
fn sweep_on<T: Column, Q: Query<Row = Swept<T>>>(
    spi: &Spi,
    behind: impl FnOnce((T, i64)) -> Q,
    swept_to: &Mutex<Option<(T, i64)>>,
    beginning: (T, i64),
) {
    let mut swept_to = swept_to.lock().unwrap_or_else(PoisonError::into_inner);
    let from = swept_to.take().unwrap_or(beginning);
    for row in spi.query(behind(from)).iter() {
        if let (Some(lane), Some(priority), Some(job)) = (row.lane_id, row.priority, row.job_id) {
            changes::claimable(lane, priority, job);
        }
        let is_full = row.looked_at == SWEEP_AT_MOST;
        *swept_to = is_full.then_some((row.reached, row.reached_lane));
    }
}
