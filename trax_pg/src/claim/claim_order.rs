//! The order of claiming: group priority, then job priority, then age.

use crate::columns::HIGHEST_PRIORITY;
use std::cmp::Reverse;

const PRIORITIES: i32 = HIGHEST_PRIORITY + 1;
pub(super) const HIGHEST_RANK: i32 = PRIORITIES * PRIORITIES - 1;

/// The rank of a job in the order of claiming; the smallest is claimed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimOrder {
    /// The priorities of group and job as one number. Waiting raises it step by step, past job
    /// priority 31 into the next higher group priority.
    rank: Reverse<i32>,
    pub(super) job_id: i64,
}

impl ClaimOrder {
    pub(super) const BEST: Self = Self {
        rank: Reverse(i32::MAX),
        job_id: i64::MIN,
    };

    pub(super) fn new(of_group: i16, priority: i16, job_id: i64) -> Self {
        Self {
            rank: Reverse(i32::from(of_group) * PRIORITIES + i32::from(priority)),
            job_id,
        }
    }

    pub(super) fn lifted(self, steps: i32) -> Self {
        let Reverse(rank) = self.rank;
        Self {
            rank: Reverse((rank + steps).min(HIGHEST_RANK)),
            ..self
        }
    }
}
