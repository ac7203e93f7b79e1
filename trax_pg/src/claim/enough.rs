//! Claims that wait for many jobs: `min_jobs` and `max_wait`.
//!
//! Enters: a request for at least so many jobs. Leaves: whether the claim goes on. Holds: while
//! fewer jobs are ready, and none of them has been ready for `max_wait`, the claim takes no row and
//! locks none. Claims with the same filter come one after the other, so none of them takes the few
//! jobs that another leaves. A claim gets fewer jobs only if limits have no room for more, or if a
//! claim with another filter takes them at the same moment.
//!
//! Cost: at most `min_jobs` rows are read; nothing without `min_jobs`.

use super::Request;
use super::lane::List;
use super::scan::{Queue, ready_since};
use crate::error::{Error, Result};
use crate::memory;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::Spi;
use crate::wake;
use crate::wake::Searched;

impl Request {
    /// Returns an error for values of `min_jobs` and `max_wait` that contradict the others.
    pub(super) fn check_min_jobs(&self) -> Result<()> {
        if self.min_jobs > self.max_jobs {
            return Err(
                Error::invalid("argument \"min_jobs\" must be at most max_jobs")
                    .detail(format!(
                        "min_jobs is {} and max_jobs is {}.",
                        self.min_jobs, self.max_jobs
                    ))
                    .hint(format!(
                        "Specify both, for example: max_jobs => {0}, min_jobs => {0}",
                        self.min_jobs
                    )),
            );
        }
        if self.max_wait.is_some() && self.min_jobs <= 1 {
            return Err(Error::invalid("argument \"max_wait\" needs min_jobs")
                .detail("A claim without min_jobs takes what is ready.")
                .hint("Specify both, for example: max_jobs => 100, min_jobs => 100, max_wait => '5 s'"));
        }
        Ok(())
    }
}

/// Returns whether enough jobs are ready for the claim, or one has been ready for long enough. If
/// not, the next wait of the session ends when this may have changed.
pub(super) fn is_ready(spi: &Spi, request: &Request) -> bool {
    if request.min_jobs <= 1 {
        return true;
    }
    let rings = wake::rings();
    let is_filtered = request.is_filtered();
    let filter = (&request.tasks, &request.groups, &request.versions);
    if !Lock::Many(&format!("{filter:?}")).take_if_free(Mode::Alone) {
        wake::looked(Searched::LeftRows(rings), is_filtered, None);
        return false;
    }
    let now = Timestamp::now();
    let (mut count, mut oldest) = (0, None);
    let mut queue = Queue::open(List::of(spi, request, false), now, None);
    while count < request.min_jobs {
        let Some(candidate) = queue.next() else { break };
        if let Some(scan) = candidate.scan() {
            let since = ready_since(scan);
            oldest = Some(oldest.map_or(since, |oldest: i64| oldest.min(since)));
            count += 1;
        }
        queue.advance(candidate, None);
    }
    let saw_all = queue.is_current && !memory::has_skips();
    // Private: the rows that are not there are published by claims.
    let gate = queue.close(true, |_| Vec::new());
    let due = oldest
        .zip(request.max_wait)
        .map(|(since, wait)| since.saturating_add(wait));
    if count >= request.min_jobs || due.is_some_and(|due| due <= now.0) {
        return true;
    }
    let look = match saw_all {
        true => Searched::All(rings),
        false => Searched::LeftRows(rings),
    };
    let opens_at = due.into_iter().chain(gate).min();
    wake::looked(look, is_filtered, opens_at);
    false
}
