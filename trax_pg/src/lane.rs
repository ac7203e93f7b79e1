//! The numbers of lanes: a lane is one task in one group, or one version of it, or the SQL jobs of
//! one role in one group; those that use one key of a rate are lanes of their own. A claim picks
//! from lanes.

use crate::server::bounded_cache::BoundedCache;
use crate::server::call::sql_function;
use crate::server::spi::arg;
use pgrx::{direct_function_call, pg_sys};
use std::cell::RefCell;

/// The number of lanes that a session caches.
const LANES_KEPT: usize = 1024;
/// The bits of a lane's number after those that the lanes of one key of a rate share.
const REST_BITS: u32 = 48;

thread_local! {
    static LANES: RefCell<BoundedCache<(String, String), i64, LANES_KEPT>> = RefCell::default();
}

sql_function!(trax_lane_of, pg_finfo_trax_lane_of, |call| {
    let group = call.text(0, "group_name")?;
    let task = call.text(1, "task")?;
    let role = call.optional_text(2, "run_as")?;
    let version = call.optional_text(3, "version")?;
    let rate = call.optional_text(4, "rate")?;
    let key = call.optional_text(5, "rate_key")?.unwrap_or_default();
    let rate = rate.as_deref().map(|rate| (rate, key.as_str()));
    let lane = of(&group, &task, role.as_deref(), version.as_deref(), rate);
    Ok(call.value(lane))
});

/// Returns the lane of a group and a task: the first 64 bits of SHA-256 over both names, each ended
/// by a zero byte. Stored in rows: must never change. Finding a task in the lane of another's takes
/// 2^63 tries. A claim that met two lanes with one number would still use the names in each row,
/// and might leave some rows to the next claim.
fn lane(group: &str, task: &str) -> i64 {
    let names = (group.to_owned(), task.to_owned());
    LANES.with_borrow_mut(|lanes| {
        if let Some(lane) = lanes.get(&names) {
            return *lane;
        }
        let bytes = [group.as_bytes(), &[0], task.as_bytes(), &[0]].concat();
        // SAFETY: the function is strict and takes and returns bytea.
        let hash: Option<Vec<u8>> =
            unsafe { direct_function_call(pg_sys::sha256_bytea, &[arg(bytes)]) };
        let hash = hash.expect("a hash of a value");
        let lane = i64::from_be_bytes(hash[..8].try_into().expect("it has 32 bytes"));
        lanes.insert(names, lane);
        lane
    })
}

/// Returns the first bits of the numbers of all lanes of a key of a rate.
pub(crate) fn of_rate(rate: &str, key: &str) -> u16 {
    first_bits(lane(rate, key))
}

/// Returns the first bits of a lane's number.
pub(crate) fn first_bits(lane: i64) -> u16 {
    (lane >> REST_BITS) as u16
}

/// Returns the lane of a job: each role has its own lanes of SQL jobs, and each version of a task,
/// and each key of a rate, its own lanes. SQL jobs have no version. No name has a zero byte. The
/// number of a lane of a rate says by its first bits which key of which rate it is.
pub(crate) fn of(
    group: &str,
    task: &str,
    run_as: Option<&str>,
    version: Option<&str>,
    rate: Option<(&str, &str)>,
) -> i64 {
    match (run_as.or(version), rate) {
        (part, Some((rate, key))) => {
            let part = part.unwrap_or("");
            let rest = lane(group, &format!("{task}\0{part}\0{rate}\0{key}"));
            (i64::from(of_rate(rate, key) as i16) << REST_BITS) | (rest & ((1 << REST_BITS) - 1))
        }
        (Some(part), None) => lane(group, &format!("{task}\0{part}")),
        (None, None) => lane(group, task),
    }
}
