//! Walks over an index whose first column is the id of a job.

use super::{Index, Key, Scan, View};

/// Jobs with ids at most this far apart are found by walking on instead of a new descent.
const CLOSE: i64 = 4;
/// The most rows to walk over: a new descent is cheaper than more.
const WALKED_AT_MOST: usize = 16;

/// A walk over the rows of jobs in ascending order, with one descent of the index for jobs that are
/// close together.
pub(crate) struct Walk {
    scan: Scan,
    /// The place of the id in a row.
    job_id: usize,
    shown: Shown,
    /// The last job of this descent.
    last: Option<i64>,
}

/// The position of a walk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Job(i64),
    End,
}

impl Walk {
    /// Begins a walk; `job_id` is the column of the table that has the id.
    pub(crate) fn begin(index: &Index, view: &View, job_id: impl Into<usize>) -> Self {
        Self {
            scan: index.scan(view, 2),
            job_id: job_id.into(),
            shown: Shown::End,
            last: None,
        }
    }

    /// Goes to the first row of a job, which must not be before the previous one; returns false if
    /// it has none. `later` are the jobs of later calls.
    pub(crate) fn goes_to(&mut self, job_id: i64, later: impl Iterator<Item = i64>) -> bool {
        if self.last.is_none_or(|last| last < job_id) || !self.walks_to(job_id) {
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
            self.step();
        }
        self.shown == Shown::Job(job_id)
    }

    /// Goes to the first row that is not before a job's, unless it is far away.
    fn walks_to(&mut self, job_id: i64) -> bool {
        for _ in 0..WALKED_AT_MOST {
            if self.shown >= Shown::Job(job_id) {
                return true;
            }
            self.step();
        }
        false
    }

    /// Goes to the next row; returns false if it is not one of the same job.
    pub(crate) fn goes_on(&mut self) -> bool {
        let before = self.shown;
        self.step();
        self.shown == before
    }

    fn step(&mut self) {
        self.shown = if self.scan.next() {
            Shown::Job(self.scan.number(self.job_id))
        } else {
            Shown::End
        };
    }

    /// Returns the scan at the found row.
    pub(crate) fn scan(&self) -> &Scan {
        &self.scan
    }

    pub(crate) fn end(self) {
        self.scan.end();
    }
}
