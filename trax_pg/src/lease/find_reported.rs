//! Finds the leases that a worker reports to hold.

use super::Held;
use crate::columns::Leased;
use crate::server::table::{Key, Scan};
use pgrx::Uuid;

/// Jobs with ids at most this far apart are found by walking on instead of a new descent.
const CLOSE: i64 = 4;

/// A walk over leases in ascending order of their jobs, with one descent of the index for jobs that
/// are close together.
pub(crate) struct Walk {
    scan: Scan,
    shown: Shown,
    /// The last job of this descent.
    last: Option<i64>,
}

/// The position of a walk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Nothing,
    Job(i64),
    End,
}

impl Walk {
    pub(crate) fn begin(scan: Scan) -> Self {
        Self {
            scan,
            shown: Shown::Nothing,
            last: None,
        }
    }

    /// Goes to the lease at `index` of `held`, which must not be before the previous one; returns
    /// false when the lease is lost. `later` are the indexes of later calls.
    pub(crate) fn finds(&mut self, held: &Held, index: usize, later: &[usize]) -> bool {
        let later = later.iter().map(|&at| held.job_ids[at]);
        self.goes_to(held.job_ids[index], later)
            && self.scan.get::<Uuid>(Leased::Token) == Some(held.tokens[index])
    }

    /// Returns the scan at the found lease.
    pub(crate) fn scan(&self) -> &Scan {
        &self.scan
    }

    pub(crate) fn end(self) {
        self.scan.end();
    }

    /// Goes to the lease of a job that is not before the current one; returns false if there is
    /// none. `later` are the jobs of later calls.
    fn goes_to(&mut self, job_id: i64, later: impl Iterator<Item = i64>) -> bool {
        if self.last.is_none_or(|last| last < job_id) {
            let last = later
                .scan(job_id, |last, next| {
                    let is_close = next.saturating_sub(*last) <= CLOSE;
                    *last = next;
                    is_close.then_some(next)
                })
                .last()
                .unwrap_or(job_id);
            self.scan
                .seek([Key::at_least(1, job_id), Key::at_most(1, last)]);
            self.last = Some(last);
            self.shown = Shown::Nothing;
        }
        while self.shown < Shown::Job(job_id) {
            self.shown = if self.scan.next() {
                Shown::Job(self.scan.number(Leased::JobId))
            } else {
                Shown::End
            };
        }
        self.shown == Shown::Job(job_id)
    }
}
