//! Unique keys: while a key is alive, another job with it is not queued.
//!
//! Words: a key is *alive* while its job waits or executes and, with a period of its own
//! (`unique_for`), until `alive_until`. After both it is *over*.
//!
//! Enters: a new job's key; the end of a job that has a key; a job that takes the key of another,
//! which has begun, over. Leaves: the one row of the key. Holds:
//! a live job with a key has its row, which is not `ended`; of an ended job only the period is
//! left, and the row stays until its end. A row that is over is free: the next job with the key
//! takes it at once. The cleanup deletes the others, by an index that contains only rows of ended
//! jobs. A jump of the clock ends no period (`believed_clock.rs`).

use crate::believed_clock;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, array_arg, row, statement};
use pgrx::pg_sys;
use std::collections::HashSet;

/// The most keys that one cycle deletes.
const FORGET_AT_MOST: i64 = 10_000;

row! {
    /// The row of a key.
    pub(crate) struct Found {
        job_id: i64,
        ended: bool,
        is_over: bool,
        is_in_period: bool,
    }
}
statement!(UniqueKeyFind, "unique_key/find.sql", { key: TEXTOID, now: TIMESTAMPTZOID } -> Found);
statement!(
    UniqueKeyTake, "unique_key/take.sql",
    { key: TEXTOID, job_id: INT8OID, alive_until: TIMESTAMPTZOID }
);
statement!(
    UniqueKeyTakeEach, "unique_key/take_each.sql",
    { keys: TEXTARRAYOID, job_ids: INT8ARRAYOID, alive_until: TIMESTAMPTZARRAYOID } -> i64
);
statement!(UniqueKeyFree, "unique_key/free.sql", { keys: TEXTARRAYOID, now: TIMESTAMPTZOID });
statement!(
    UniqueKeyPassOn, "unique_key/pass_on.sql",
    { key: TEXTOID, job_id: INT8OID, former_job_id: INT8OID, alive_until: TIMESTAMPTZOID }
);
statement!(UniqueKeyGiveUp, "unique_key/give_up.sql", { key: TEXTOID, job_id: INT8OID } -> i64);
statement!(
    UniqueKeyProlong, "unique_key/prolong.sql",
    { key: TEXTOID, job_id: INT8OID, alive_until: TIMESTAMPTZOID }
);
statement!(
    UniqueKeyRelease, "unique_key/release.sql",
    { keys: TEXTARRAYOID, job_ids: INT8ARRAYOID, now: TIMESTAMPTZOID }
);
statement!(
    UniqueKeyKeep, "unique_key/keep.sql",
    { keys: TEXTARRAYOID, job_ids: INT8ARRAYOID, now: TIMESTAMPTZOID }
);
statement!(
    UniqueKeyForget, "unique_key/forget.sql",
    { now: TIMESTAMPTZOID, at_most: INT8OID }
);

/// The job that keeps a key alive.
pub(crate) struct KeyTaken {
    pub(crate) job_id: i64,
    /// The job has ended, and the period of the key has not.
    pub(crate) ended: bool,
}

/// The key of a new job.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a str,
    pub(crate) job_id: i64,
    pub(crate) alive_until: Option<Timestamp>,
}

/// Returns the row of a key, as committed now even if the transaction's snapshot is older: the job
/// of a key may have ended since.
pub(crate) fn find(spi: &Spi, key: &str, now: Timestamp) -> Option<Found> {
    spi.query_latest(UniqueKeyFind {
        key: arg(key),
        now: arg(believed_clock::jump(spi, now).earlier(now)),
    })
    .first()
}

/// Takes a free key; returns false when another job has it.
pub(crate) fn take(spi: &Spi, wanted: Wanted) -> bool {
    spi.change_latest(UniqueKeyTake {
        key: arg(wanted.key),
        job_id: arg(wanted.job_id),
        alive_until: alive_until(spi, &wanted),
    })
    .len()
        == 1
}

/// Takes the free keys, each for the first job that wants it; returns the jobs that have one now.
pub(crate) fn take_each(spi: &Spi, wanted: &[Wanted], now: Timestamp) -> HashSet<i64> {
    let mut taken = take_free(spi, wanted);
    let left: Vec<Wanted> = wanted
        .iter()
        .filter(|wanted| !taken.contains(&wanted.job_id))
        .copied()
        .collect();
    let keys: Vec<&str> = left.iter().map(|wanted| wanted.key).collect();
    if !left.is_empty() {
        free_over(spi, &keys, now);
        taken.extend(take_free(spi, &left));
    }
    taken
}

/// Returns until when a key stays alive, for a column; a clock that has jumped back does not
/// shorten it.
fn alive_until(spi: &Spi, wanted: &Wanted) -> Option<pg_sys::Datum> {
    let until = wanted.alive_until?;
    arg(believed_clock::jump(spi, Timestamp::now()).later(until))
}

fn take_free(spi: &Spi, wanted: &[Wanted]) -> HashSet<i64> {
    let column = |value: &dyn Fn(&Wanted) -> Option<pg_sys::Datum>, element| {
        array_arg(element, &wanted.iter().map(value).collect::<Vec<_>>())
    };
    let taken = spi.change_latest(UniqueKeyTakeEach {
        keys: column(&|wanted| arg(wanted.key), pg_sys::TEXTOID),
        job_ids: column(&|wanted| arg(wanted.job_id), pg_sys::INT8OID),
        alive_until: column(&|wanted| alive_until(spi, wanted), pg_sys::TIMESTAMPTZOID),
    });
    taken.iter().collect()
}

/// Deletes those of some keys that are over; waits for transactions that take or delete one.
pub(crate) fn free_over(spi: &Spi, keys: &[&str], now: Timestamp) {
    let keys: Vec<Option<pg_sys::Datum>> = keys.iter().map(|&key| arg(key)).collect();
    spi.change_latest(UniqueKeyFree {
        keys: array_arg(pg_sys::TEXTOID, &keys),
        now: arg(believed_clock::jump(spi, now).earlier(now)),
    });
}

/// Passes the key of a job to its replacement; returns false when another job has taken it.
pub(crate) fn pass_on(spi: &Spi, former_job_id: i64, wanted: Wanted) -> bool {
    spi.change_latest(UniqueKeyPassOn {
        key: arg(wanted.key),
        job_id: arg(wanted.job_id),
        former_job_id: arg(former_job_id),
        alive_until: alive_until(spi, &wanted),
    })
    .len()
        == 1
}

/// Removes the key from a job that waits or is executed, so that it can be passed on; returns false
/// when the job has it no more. Waits for a transaction that moves or ends the job.
pub(crate) fn give_up(spi: &Spi, key: &str, job_id: i64) -> bool {
    let (key, job_id) = (arg(key), arg(job_id));
    spi.change_latest(UniqueKeyGiveUp { key, job_id }).len() == 1
}

/// Keeps the key of a job alive for the period of another call with it.
pub(crate) fn prolong(spi: &Spi, wanted: Wanted) {
    if let Some(until) = alive_until(spi, &wanted) {
        spi.change_latest(UniqueKeyProlong {
            key: arg(wanted.key),
            job_id: arg(wanted.job_id),
            alive_until: Some(until),
        });
    }
}

/// Releases the keys of jobs that have ended; keys and jobs are parallel arrays. Keys with time
/// left stay alive until its end.
pub(crate) fn release(spi: &Spi, keys: Vec<String>, job_ids: Vec<i64>, now: Timestamp) {
    if keys.is_empty() {
        return;
    }
    let count = keys.len();
    let over_by = believed_clock::jump(spi, now).earlier(now);
    let (keys, job_ids, now) = (arg(keys), arg(job_ids), arg(over_by));
    if spi.execute(UniqueKeyRelease { keys, job_ids, now }) < count {
        spi.execute(UniqueKeyKeep { keys, job_ids, now });
    }
}

/// Deletes the key of a job that is not queued after all, whatever its period.
pub(crate) fn give_back(spi: &Spi, key: &str, job_id: i64) {
    spi.execute(UniqueKeyRelease {
        keys: arg(vec![key.to_owned()]),
        job_ids: arg(vec![job_id]),
        now: arg(Timestamp(i64::MAX)),
    });
}

/// Deletes keys that are over; returns how many.
pub(crate) fn forget_over(spi: &Spi, now: Timestamp) -> usize {
    spi.execute(UniqueKeyForget {
        now: arg(now),
        at_most: arg(FORGET_AT_MOST),
    })
}
