//! Expiry: ends jobs that have waited longer than they may.

use super::{GivenUp, given_up};
use crate::columns::Outcome;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::{changes, unreadable_job};

/// The most queued jobs that one cycle ends because they waited too long.
pub(crate) const EXPIRE_AT_MOST: i64 = 1000;

statement!(
    RunExpireQueued, "outcome/run_expire_queued.sql",
    { now: TIMESTAMPTZOID, ended_by: TIMESTAMPTZOID, at_most: INT8OID } -> GivenUp
);
statement!(
    RunExpiring, "outcome/expiring.sql",
    { ended_by: TIMESTAMPTZOID, at_most: INT8OID } -> i64
);

/// Ends jobs that by `ended_by` have waited longer than they may; returns how many.
pub(crate) fn expire_queued(spi: &Spi, now: Timestamp, ended_by: Timestamp) -> usize {
    changes::taken();
    let expire = || {
        let rows = spi.query(RunExpireQueued {
            now: arg(now),
            ended_by: arg(ended_by),
            at_most: arg(EXPIRE_AT_MOST),
        });
        Ok(rows.iter().collect::<Vec<GivenUp>>())
    };
    let expired = spi::isolated(expire).or_else(|error| {
        if !error.is_unreadable() {
            return Err(error);
        }
        let expiring = spi.query(RunExpiring {
            ended_by: arg(ended_by),
            at_most: arg(EXPIRE_AT_MOST),
        });
        let expiring: Vec<i64> = expiring.iter().collect();
        unreadable_job::put_off(spi, unreadable_job::find(spi, &expiring), now);
        expire()
    });
    match expired {
        Ok(jobs) => given_up(spi, jobs, Outcome::Expired, now),
        Err(error) => error.raise(),
    }
}
