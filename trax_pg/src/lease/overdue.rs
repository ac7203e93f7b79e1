//! The reaper: takes away expired leases.
//!
//! A lease that seems to have expired lasts until the time of the last heartbeat that came while
//! another transaction had its row locked (`trax.lease_extension`). A lease that was not extended
//! since the cycle *came back* lasts one lease length from then, because workers could not send
//! heartbeats while the server was down or stood still. The cycle comes back when the scheduler's
//! process starts, and when the scheduler looks more than [`STALL_MICROS`] later than planned (it
//! was paused or stopped, or its machine was suspended). A cycle by hand knows no scheduler: for
//! it, the cycle comes back when the server starts, when all its processes are restarted after a
//! crash, and when a standby is promoted.
//!
//! A dead lease lasts a bounded time. Its end alone is no bound: an outage may last longer than any
//! lease, and a worker that could not connect keeps its lease. So only the time in which cycles
//! look counts, and each *allowance* is half as long as the one before, until the owner's next
//! heartbeat: a lease of length L gains less than L + L/2 + L/4 + ... = 2 L of that time, however
//! often the server restarts. A lease of 30 s in a crash loop of 5 s is reaped after four returns,
//! a lease of 24 h with nightly restarts on the second day. The row stores this: an allowance of
//! length A that begins at B sets `lease_expires_at` to B + A and `extended_at` to B + A/2. Their
//! difference, A/2, is the length of the next allowance.
//!
//! A lease whose manifest another transaction has locked cannot end now: it is *put off*, so that
//! it does not keep the reaper from other leases.

use super::Locked;
use super::reaper::Reaper;
use crate::server::clock::{Timestamp, micros};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::{setting, wake};
use pgrx::datum::Interval;
use pgrx::{Uuid, pg_sys};
use std::collections::HashMap;

/// Recorded heartbeats are deleted this long after they expired.
const FORGET_MICROS: i64 = 60 * 1_000_000;

statement!(
    LeaseOverdue, "lease/overdue.sql",
    { job_ids: INT8ARRAYOID, now: TIMESTAMPTZOID, asked_by: TIMESTAMPTZOID } -> (Locked, Deadlines)
);
statement!(
    LeaseExtended, "lease/extended.sql",
    { job_ids: INT8ARRAYOID, tokens: UUIDARRAYOID } -> Extended
);
statement!(LeaseExtensionForget, "lease/extension_forget.sql", { before: TIMESTAMPTZOID });
statement!(LeaseTimeOut, "lease/time_out.sql", { job_ids: INT8ARRAYOID, now: TIMESTAMPTZOID });
statement!(LeaseServerBack, "lease/server_back.sql" -> Option<Timestamp>);
statement!(
    LeaseLookLater, "lease/look_later.sql",
    {
        job_ids: INT8ARRAYOID,
        extended_at: TIMESTAMPTZARRAYOID,
        lease_expires_at: TIMESTAMPTZARRAYOID,
        reap_at: TIMESTAMPTZARRAYOID,
        ahead: BOOLARRAYOID,
        default_timeout: INTERVALOID,
    }
);
statement!(LeasePutOff, "lease/put_off.sql", { job_ids: INT8ARRAYOID, now: TIMESTAMPTZOID });

/// Asks attempts that run longer than their timeout to stop; returns how many. The row records when
/// the attempt was asked, so that a late cycle leaves it the whole grace.
pub(crate) fn cancel_timed_out(spi: &Spi, now: Timestamp, reaper: &mut Reaper) -> usize {
    let job_ids = reaper.take_timed_out();
    if job_ids.is_empty() {
        return 0;
    }
    let cancelled = spi.execute(LeaseTimeOut {
        job_ids: arg(job_ids),
        now: arg(now),
    });
    if cancelled > 0 {
        // Statements that run in the server are cancelled at once.
        wake::mark(wake::SQL);
    }
    cancelled
}

/// Why the reaper takes a lease away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    LeaseExpired,
    /// The lease of a job that was fetched ahead and has not begun expired.
    NotBegun,
    TimedOut,
}

/// When a lease was last extended, and until when.
#[derive(Clone, Copy)]
struct Term {
    extended_at: Timestamp,
    expires_at: Timestamp,
}

impl Term {
    /// Returns the term that follows when the cycle came back at `back_at`, if the lease was not
    /// extended since: one lease length from then, and half of that the next time.
    fn with_allowance(self, back_at: Timestamp) -> Option<Self> {
        let length = self.expires_at.0.saturating_sub(self.extended_at.0);
        if self.extended_at >= back_at || length <= 0 {
            return None;
        }
        Some(Self {
            extended_at: back_at.plus(length - length / 2),
            expires_at: back_at.plus(length),
        })
    }
}

row! {
    /// When the reaper has to act on a lease, according to its row.
    struct Deadlines {
        token: Uuid,
        extended_at: Timestamp,
        lease_expires_at: Timestamp,
        timeout_at: Timestamp,
        ahead: bool,
    }
}
row! {
    /// The extensions that heartbeats recorded beside the lease's row.
    struct Extended {
        job_id: i64,
        extended_at: Timestamp,
        lease_expires_at: Timestamp,
        ahead: bool,
    }
}

/// A lease that the reaper looks at, locked.
struct Candidate {
    lease: Locked,
    token: Uuid,
    term: Term,
    timeout_at: Timestamp,
    /// Its timeout does not count: the job had not begun when the row was written.
    untimed: bool,
    /// The job has not begun, also according to later recorded heartbeats.
    ahead: bool,
}

/// Locks the next leases that seem overdue, returns those that are, and sets the time of the next
/// look at the others. Leases that another transaction has locked are skipped, until the next look.
pub(crate) fn take_overdue(
    spi: &Spi,
    now: Timestamp,
    reaper: &mut Reaper,
) -> Vec<(Locked, Overdue)> {
    let job_ids = reaper.take_overdue();
    if job_ids.is_empty() {
        return Vec::new();
    }
    let grace = micros(setting::cancel_grace());
    let rows = spi.query(LeaseOverdue {
        job_ids: arg(job_ids),
        now: arg(now),
        asked_by: arg(now.plus(grace.saturating_neg())),
    });
    let mut candidates: Vec<Candidate> = rows
        .iter()
        .map(|(lease, deadlines)| Candidate {
            lease,
            token: deadlines.token,
            term: Term {
                extended_at: deadlines.extended_at,
                expires_at: deadlines.lease_expires_at,
            },
            timeout_at: deadlines.timeout_at,
            untimed: deadlines.ahead,
            ahead: deadlines.ahead,
        })
        .collect();
    extend(spi, &mut candidates, now);
    let back_at = match reaper.back_at() {
        Some(back_at) => back_at,
        None if candidates.is_empty() => now,
        None => server_back(spi),
    };
    // If the clock has jumped back, `back_at` lies in the future: no allowance is longer because of
    // that.
    let back_at = back_at.min(now);
    let mut overdue = Vec::new();
    let mut alive: Vec<Alive> = Vec::new();
    for candidate in candidates {
        let Candidate {
            lease, timeout_at, ..
        } = candidate;
        let with_allowance = candidate.term.with_allowance(back_at);
        let term = with_allowance.unwrap_or(candidate.term);
        // Before the timeout was announced the next look is at the timeout, afterwards at the end
        // of the grace. A worker without a heartbeat since, which may have been unable to send one
        // while the cycle was away, is notified first.
        let deadline = if candidate.untimed {
            Timestamp(i64::MAX)
        } else if !lease.timed_out {
            timeout_at
        } else if with_allowance.is_some() && candidate.term.extended_at < timeout_at {
            timeout_at.max(back_at).plus(grace)
        } else {
            timeout_at.plus(grace)
        };
        if term.expires_at <= now {
            let kind = if candidate.ahead {
                Overdue::NotBegun
            } else {
                Overdue::LeaseExpired
            };
            overdue.push((lease, kind));
        } else if lease.timed_out && deadline <= now {
            overdue.push((lease, Overdue::TimedOut));
        } else {
            alive.push(Alive {
                job_id: lease.job_id,
                put_off_until: lease.timed_out.then(|| deadline.min(term.expires_at)),
                term,
                ahead: candidate.ahead,
            });
        }
    }
    look_later(spi, alive);
    overdue
}

/// Returns when the server last began to accept heartbeats.
fn server_back(spi: &Spi) -> Timestamp {
    // SAFETY: a plain number of the server.
    let started = Timestamp(unsafe { pg_sys::PgStartTime });
    let back = spi.query(LeaseServerBack).first().flatten();
    back.unwrap_or(started)
}

/// Applies the extensions that heartbeats recorded for leases that seem to have expired. Runs after
/// the rows are locked, and reads with a new snapshot, so that earlier heartbeats are seen.
fn extend(spi: &Spi, candidates: &mut [Candidate], now: Timestamp) {
    let expired = candidates
        .iter()
        .filter(|candidate| candidate.term.expires_at <= now);
    let (job_ids, tokens): (Vec<i64>, Vec<Uuid>) = expired
        .map(|candidate| (candidate.lease.job_id, candidate.token))
        .unzip();
    if job_ids.is_empty() {
        return;
    }
    let rows = spi.query_latest(LeaseExtended {
        job_ids: arg(job_ids),
        tokens: arg(tokens),
    });
    let extended: HashMap<i64, (Term, bool)> = rows
        .iter()
        .map(|row| {
            let term = Term {
                extended_at: row.extended_at,
                expires_at: row.lease_expires_at,
            };
            (row.job_id, (term, row.ahead))
        })
        .collect();
    for candidate in candidates {
        if let Some(&(later, ahead)) = extended.get(&candidate.lease.job_id) {
            // A job that has begun stays begun.
            candidate.ahead &= ahead;
            if later.expires_at > candidate.term.expires_at {
                candidate.term = later;
            }
        }
    }
}

/// A lease that is not overdue although its row says so.
struct Alive {
    job_id: i64,
    term: Term,
    /// For an attempt that was asked to stop, the end of its grace or of its lease, if that comes
    /// first.
    put_off_until: Option<Timestamp>,
    ahead: bool,
}

fn look_later(spi: &Spi, mut alive: Vec<Alive>) {
    if alive.is_empty() {
        return;
    }
    alive.sort_by_key(|lease| lease.job_id);
    let job_ids: Vec<i64> = alive.iter().map(|lease| lease.job_id).collect();
    let times = |of: fn(&Alive) -> Option<Timestamp>| {
        let times: Vec<_> = alive.iter().map(|lease| of(lease).and_then(arg)).collect();
        spi::array_arg(pg_sys::TIMESTAMPTZOID, &times)
    };
    let ahead: Vec<bool> = alive.iter().map(|lease| lease.ahead).collect();
    let default_timeout = Interval::new(0, 0, micros(setting::default_timeout()));
    spi.execute(LeaseLookLater {
        job_ids: arg(job_ids),
        extended_at: times(|lease| Some(lease.term.extended_at)),
        lease_expires_at: times(|lease| Some(lease.term.expires_at)),
        reap_at: times(|lease| lease.put_off_until),
        ahead: arg(ahead),
        default_timeout: arg(default_timeout.expect("a setting is a length of time")),
    });
}

/// Postpones the reaper's next look at overdue leases that cannot end now.
pub(crate) fn put_off(spi: &Spi, job_ids: Vec<i64>, now: Timestamp) {
    spi.execute(LeasePutOff {
        job_ids: arg(job_ids),
        now: arg(now),
    });
}

/// Deletes recorded heartbeats that no longer matter.
pub(crate) fn forget_extensions(spi: &Spi, now: Timestamp) {
    let before = now.plus(-FORGET_MICROS);
    spi.execute(LeaseExtensionForget {
        before: arg(before),
    });
}

#[cfg(test)]
mod tests {
    use super::{Term, Timestamp};

    fn with_allowance(extended_at: i64, expires_at: i64, back_at: i64) -> Option<(i64, i64)> {
        let term = Term {
            extended_at: Timestamp(extended_at),
            expires_at: Timestamp(expires_at),
        };
        let term = term.with_allowance(Timestamp(back_at))?;
        Some((term.extended_at.0, term.expires_at.0))
    }

    #[test]
    fn a_lease_that_nobody_could_extend_lasts_one_lease_more_and_then_half_of_it() {
        assert_eq!(with_allowance(100, 130, 200), Some((215, 230)));
        assert_eq!(with_allowance(215, 230, 200), None, "once for each time");
        assert_eq!(with_allowance(215, 230, 210), None, "half of it is left");
        assert_eq!(with_allowance(215, 230, 220), Some((228, 235)));
        assert_eq!(
            with_allowance(100, 130, 120),
            Some((135, 150)),
            "it had not run out"
        );
        assert_eq!(with_allowance(200, 230, 200), None, "it was extended since");
        assert_eq!(with_allowance(300, 330, 200), None);
        assert_eq!(with_allowance(150, 150, 300), None, "ended by hand");
        assert_eq!(with_allowance(200, 150, 300), None);
    }

    #[test]
    fn what_returns_give_in_all_is_less_than_two_leases_of_the_time_in_which_cycles_look() {
        for (lease, away, looks) in [(30, 7, 5), (86_400, 5, 3_000), (30, 600, 14), (30, 1, 1)] {
            let (mut term, mut back_at, mut looked) = ((0, lease), lease + away, 0);
            // The last cycle before the next outage finds the lease alive.
            while let Some(next) = with_allowance(term.0, term.1, back_at).or(Some(term))
                && next.1 > back_at + looks
            {
                term = next;
                looked += looks;
                back_at += looks + away;
            }
            assert!(looked <= 2 * lease, "{lease} {away} {looks}: {looked}");
        }
    }
}
