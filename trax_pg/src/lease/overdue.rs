//! The reaper: leases whose time is over.
//!
//! A lease that seems to have run out lasts as long as the last heartbeat says that came while another transaction had its
//! row (`trax.lease_extension`). One that nobody has extended since the cycle *came back* lasts one lease from then: while
//! the server was down, or stood still, no worker could say that it lives. The cycle comes back with the server, with the
//! scheduler's process, and when that has not looked for [`STALL_MICROS`] longer than it meant to (paused, stopped, or on
//! a machine that was suspended). What a lease gains so is written into its row, so that it gains it once for each time.

use super::Locked;
use crate::clock::{Timestamp, micros};
use crate::setting;
use crate::spi::{self, Spi, arg, statement};
use pgrx::{Uuid, pg_sys};
use std::collections::HashMap;
use std::time::Instant;

/// Most leases looked at in one cycle for being overdue; after so many the next cycle follows at once.
const OVERDUE_AT_MOST: i64 = 1000;
/// How often a scheduler looks at leases from the beginning, and the share of the time that this may take, as its inverse.
const LOOK_AGAIN_MICROS: i64 = 1_000_000;
const LOOK_SHARE: i64 = 100;
/// How long ago a heartbeat beside a lease must have run out before it is forgotten.
const FORGET_MICROS: i64 = 60 * 1_000_000;
/// By how much a scheduler looks later than it meant to when it stood still.
const STALL_MICROS: i64 = 2_000_000;

statement!(
    LEASE_OVERDUE,
    "lease_overdue.sql",
    TIMESTAMPTZOID,
    INT8OID,
    TIMESTAMPTZOID
);
statement!(
    LEASE_EXTENDED,
    "lease_extended.sql",
    INT8ARRAYOID,
    UUIDARRAYOID
);
statement!(
    LEASE_EXTENSION_FORGET,
    "lease_extension_forget.sql",
    TIMESTAMPTZOID
);
statement!(
    LEASE_TIME_OUT,
    "lease_time_out.sql",
    TIMESTAMPTZOID,
    TIMESTAMPTZOID
);
statement!(LEASE_FIRST, "lease_first.sql", TIMESTAMPTZOID);
statement!(
    LEASE_LOOK_LATER,
    "lease_look_later.sql",
    INT8ARRAYOID,
    TIMESTAMPTZARRAYOID,
    TIMESTAMPTZARRAYOID,
    TIMESTAMPTZARRAYOID
);

/// Where the reaper begins to look.
///
/// Leases that have ended leave dead entries at the head of `lease_reap_at` until a vacuum, all those of a long load
/// while a snapshot is held somewhere. A scheduler remembers where the first live lease was, as its own hint: a lease
/// whose claim was committed late is found because it begins at the beginning once a second, or less often when that
/// takes long.
#[derive(Clone, Copy)]
pub(crate) struct ReapFrom {
    from: Timestamp,
    look_at: Timestamp,
    /// When the cycle last came back.
    back_at: Timestamp,
    /// When a scheduler's last cycle was done.
    looked_at: Option<Timestamp>,
}

impl ReapFrom {
    /// At the first entry, for a cycle by hand.
    pub(crate) fn beginning() -> Self {
        Self {
            from: Timestamp(i64::MIN),
            look_at: Timestamp(i64::MIN),
            // SAFETY: a plain number of the server.
            back_at: Timestamp(unsafe { pg_sys::PgStartTime }),
            looked_at: None,
        }
    }

    /// At the first entry, for a scheduler that begins at `now`.
    pub(crate) fn of_scheduler(now: Timestamp) -> Self {
        Self {
            back_at: now,
            ..Self::beginning()
        }
    }

    /// Where to begin now, and where next time. Before the cycle takes leases away: it may be undone.
    pub(crate) fn next(self, spi: &Spi, now: Timestamp) -> Self {
        // A clock that was set back must not put the look off.
        let soon = now.plus(3600 * LOOK_AGAIN_MICROS);
        let beginning = Timestamp(i64::MIN);
        let begin = if now < self.look_at && self.look_at < soon {
            self.from
        } else {
            beginning
        };
        let began = Instant::now();
        let first = spi
            .query(&LEASE_FIRST, &[arg(begin)])
            .first()
            .map_or(now, |row| row.must(1));
        let pause = (micros(began.elapsed()) * LOOK_SHARE).max(LOOK_AGAIN_MICROS);
        Self {
            from: first.min(now),
            look_at: if begin == beginning {
                now.plus(pause)
            } else {
                self.look_at
            },
            back_at: if self.stood_still(now) {
                now
            } else {
                self.back_at
            },
            looked_at: None,
        }
    }

    /// A cycle is done at `now`.
    pub(crate) fn looked(&mut self, now: Timestamp) {
        self.looked_at = Some(now);
    }

    fn stood_still(&self, now: Timestamp) -> bool {
        let meant = micros(setting::tick_interval()).saturating_add(STALL_MICROS);
        self.looked_at.is_some_and(|at| at.plus(meant) < now)
    }
}

/// Asks attempts that run longer than their timeout to stop; gives how many.
pub(crate) fn cancel_timed_out(spi: &Spi, now: Timestamp, from: ReapFrom) -> usize {
    spi.execute(&LEASE_TIME_OUT, &[arg(now), arg(from.from)])
}

/// Why the reaper takes a lease away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    LeaseExpired,
    /// The same of a job that was fetched ahead and has not begun.
    NotBegun,
    TimedOut,
}

/// What a look for overdue leases brought.
pub(crate) struct Look {
    pub(crate) overdue: Vec<(Locked, Overdue)>,
    /// How many it met that are not overdue, and are looked at later.
    pub(crate) alive: usize,
    /// It looked at as many as one cycle may.
    pub(crate) full: bool,
}

/// When a lease was last extended, and until when.
#[derive(Clone, Copy)]
struct Term {
    extended_at: Timestamp,
    expires_at: Timestamp,
}

impl Term {
    /// What it is when the cycle came back at `back_at`: one that was not extended since lasts one lease from then.
    fn with_grace(self, back_at: Timestamp) -> Self {
        if self.extended_at >= back_at {
            return self;
        }
        let lease = self.expires_at.0.saturating_sub(self.extended_at.0).max(0);
        let graced = back_at.plus(lease);
        if graced <= self.expires_at {
            return self;
        }
        Self {
            extended_at: back_at,
            expires_at: graced,
        }
    }
}

/// A lease that the reaper looks at, locked.
struct Met {
    lease: Locked,
    token: Uuid,
    term: Term,
    timeout_at: Timestamp,
    ahead: bool,
}

/// Locks overdue leases for their outcome, and sets for the others it met when to look again.
pub(crate) fn take_overdue(spi: &Spi, now: Timestamp, from: ReapFrom) -> Look {
    let grace = micros(setting::cancel_grace());
    let arguments = [arg(now), arg(OVERDUE_AT_MOST), arg(from.from)];
    let rows = spi.query(&LEASE_OVERDUE, &arguments);
    let mut met: Vec<Met> = rows
        .iter()
        .map(|row| {
            let term = Term {
                extended_at: row.must(14),
                expires_at: row.must(15),
            };
            Met {
                lease: Locked::read(&row),
                token: row.must(13),
                term,
                timeout_at: row.must(16),
                ahead: row.must(17),
            }
        })
        .collect();
    extend(spi, &mut met, now);
    let mut overdue = Vec::new();
    let mut alive: Vec<Alive> = Vec::new();
    for met in met {
        let Met {
            lease, timeout_at, ..
        } = met;
        let term = met.term.with_grace(from.back_at);
        // Before the timeout was announced the next look is at the timeout, afterwards at the end of the grace; a worker
        // that the server could not tell is told first.
        let deadline = if lease.timed_out {
            let told_by = (term.extended_at == from.back_at).then_some(term.expires_at);
            told_by.map_or(timeout_at.plus(grace), |at| at.max(timeout_at.plus(grace)))
        } else {
            timeout_at
        };
        if term.expires_at <= now {
            let kind = if met.ahead {
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
                look_at: term.expires_at.min(deadline),
                term,
            });
        }
    }
    let look = Look {
        overdue,
        alive: alive.len(),
        full: rows.len() as i64 >= OVERDUE_AT_MOST,
    };
    look_later(spi, alive);
    look
}

/// What heartbeats said of those that seem to have run out. After the rows are locked, and whatever the transaction's
/// snapshot is: one that came before is seen.
fn extend(spi: &Spi, met: &mut [Met], now: Timestamp) {
    let expired = met.iter().filter(|met| met.term.expires_at <= now);
    let (job_ids, tokens): (Vec<i64>, Vec<Uuid>) =
        expired.map(|met| (met.lease.job_id, met.token)).unzip();
    if job_ids.is_empty() {
        return;
    }
    let rows = spi.query_latest(&LEASE_EXTENDED, &[arg(job_ids), arg(tokens)]);
    let extended: HashMap<i64, Term> = rows
        .iter()
        .map(|row| {
            let term = Term {
                extended_at: row.must(2),
                expires_at: row.must(3),
            };
            (row.must(1), term)
        })
        .collect();
    for met in met {
        if let Some(later) = extended.get(&met.lease.job_id) {
            // A heartbeat beside it says that it has begun, or that its worker lives to say otherwise.
            met.ahead = false;
            if later.expires_at > met.term.expires_at {
                met.term = *later;
            }
        }
    }
}

/// A lease that is not overdue, and when to look at it again.
struct Alive {
    job_id: i64,
    term: Term,
    look_at: Timestamp,
}

fn look_later(spi: &Spi, mut alive: Vec<Alive>) {
    if alive.is_empty() {
        return;
    }
    alive.sort_by_key(|lease| lease.job_id);
    let job_ids: Vec<i64> = alive.iter().map(|lease| lease.job_id).collect();
    let times = |of: fn(&Alive) -> Timestamp| {
        let times: Vec<_> = alive.iter().map(|lease| arg(of(lease))).collect();
        spi::array_arg(pg_sys::TIMESTAMPTZOID, &times)
    };
    let arguments = [
        arg(job_ids),
        times(|lease| lease.term.extended_at),
        times(|lease| lease.term.expires_at),
        times(|lease| lease.look_at),
    ];
    spi.execute(&LEASE_LOOK_LATER, &arguments);
}

/// Forgets heartbeats that say nothing any more.
pub(crate) fn forget_extensions(spi: &Spi, now: Timestamp) {
    let before = now.plus(-FORGET_MICROS);
    spi.execute(&LEASE_EXTENSION_FORGET, &[arg(before)]);
}

#[cfg(test)]
mod tests {
    use super::{Term, Timestamp};

    fn graced(extended_at: i64, expires_at: i64, back_at: i64) -> (i64, i64) {
        let term = Term {
            extended_at: Timestamp(extended_at),
            expires_at: Timestamp(expires_at),
        };
        let term = term.with_grace(Timestamp(back_at));
        (term.extended_at.0, term.expires_at.0)
    }

    #[test]
    fn a_lease_that_nobody_could_extend_lasts_one_lease_more_and_once() {
        assert_eq!(graced(100, 130, 200), (200, 230));
        assert_eq!(graced(100, 130, 120), (120, 150), "it had not run out yet");
        assert_eq!(graced(200, 230, 200), (200, 230), "it was extended since");
        assert_eq!(graced(300, 330, 200), (300, 330));
        assert_eq!(graced(200, 150, 300), (300, 300), "ended by hand");
    }
}
