//! Where the reaper looks for leases that are over.
//!
//! Enters: all leases. Leaves: the jobs of those at a deadline. Holds: a lease needs no entry in an
//! index of deadlines, which nearly all jobs would write and delete without anybody reading it, and
//! which a heartbeat would have to move.
//!
//! A *look* reads the leases of some pages in the order in which they are stored: all leases up to
//! 250,000, at 0.2 µs each. The next look goes on behind these pages, and looks take at most a
//! fiftieth of the time ([`LOOK_SHARE`]): among a million leases an expired one is found within ten
//! seconds. Ended leases leave dead rows until a vacuum, all those of a long load while a snapshot
//! is held; they make the round longer, but no look.

use super::heartbeat::is_of_wrong_clock;
use crate::columns::Leased;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp, micros};
use crate::server::table::{StoredRows, Table, View};
use crate::setting;
use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The most pages of one look: 64 MB.
const PAGES_AT_MOST: u32 = 8192;
/// The inverse of the share of time that looks may take.
const LOOK_SHARE: u32 = 50;
/// The longest pause between two looks, after one during which the process was stopped.
const PAUSE_AT_MOST: Duration = Duration::from_secs(10);
/// The longest time for which `lease/put_off.sql` puts a lease off. A grace may last longer.
const PUT_OFF_MICROS: i64 = 10_000_000;
/// The most leases that are checked together; after that many, the next cycle follows at once.
const OVERDUE_AT_MOST: usize = 1000;
/// A scheduler that looks this much later than planned has stood still.
const STALL_MICROS: i64 = 2_000_000;

/// The jobs of leases at a deadline.
#[derive(Default)]
struct Due {
    /// They have run longer than their timeout, and are to be asked to stop.
    timed_out: Vec<i64>,
    /// Their lease has expired, or they were asked to stop a grace ago.
    overdue: Vec<i64>,
    /// A clock that was ahead has extended their lease.
    of_wrong_clock: Vec<i64>,
}

/// The looks of a session.
pub(crate) struct Reaper {
    /// When the cycle last came back; for a cycle by hand, when the server did.
    back_at: Option<Timestamp>,
    /// When a scheduler's last cycle was done.
    looked_at: Option<Timestamp>,
    pages_at_most: u32,
    /// The page at which the next look begins, and when.
    next_page: u32,
    next_look: Instant,
    /// Some leases were not read in this cycle.
    is_behind: bool,
    due: Due,
}

impl Reaper {
    /// For a cycle by hand, which reads all leases.
    pub(crate) fn by_hand() -> Self {
        Self {
            back_at: None,
            looked_at: None,
            pages_at_most: u32::MAX,
            next_page: 0,
            next_look: Instant::now(),
            is_behind: false,
            due: Due::default(),
        }
    }

    /// For a scheduler that starts at `now`.
    pub(crate) fn of_scheduler(now: Timestamp) -> Self {
        Self {
            back_at: Some(now),
            // A scheduler that is paused from the start stands still until it continues.
            looked_at: Some(now),
            pages_at_most: PAGES_AT_MOST,
            ..Self::by_hand()
        }
    }

    /// Begins a scheduler's cycle at `now`.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        let meant = micros(setting::tick_interval()).saturating_add(STALL_MICROS);
        if self.looked_at.take().is_some_and(|at| at.plus(meant) < now) {
            self.back_at = Some(now);
        }
    }

    /// Ends a scheduler's cycle at `now`; returns how long until the next look, if leases are left
    /// for it.
    pub(crate) fn end(&mut self, now: Timestamp) -> Option<Duration> {
        self.looked_at = Some(now);
        let pause = self.next_look.saturating_duration_since(Instant::now());
        self.is_behind.then_some(pause)
    }

    pub(super) fn back_at(&self) -> Option<Timestamp> {
        self.back_at
    }

    /// Looks for leases at a deadline at `now`, and for those of a clock ahead of `latest`, unless
    /// it is too early.
    pub(crate) fn look(&mut self, now: Timestamp, latest: Timestamp) {
        let began = Instant::now();
        if began < self.next_look {
            self.is_behind = true;
            return;
        }
        let pages = self.next_page..self.next_page.saturating_add(self.pages_at_most);
        let begins_at = pages.start;
        let (mut due, next_page) = read(now, latest, pages);
        // The rest of an earlier look comes first, or locked leases could hide others.
        let mut overdue = std::mem::take(&mut self.due.overdue);
        let known: HashSet<i64> = overdue.iter().copied().collect();
        overdue.extend(due.overdue.iter().filter(|job_id| !known.contains(job_id)));
        due.overdue = overdue;
        self.due = due;
        self.next_page = next_page;
        self.is_behind = begins_at > 0 || next_page > 0;
        let end = Instant::now();
        self.next_look = end + ((end - began) * LOOK_SHARE).min(PAUSE_AT_MOST);
    }

    pub(super) fn take_timed_out(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.due.timed_out)
    }

    /// Takes the next jobs whose lease seems overdue.
    pub(super) fn take_overdue(&mut self) -> Vec<i64> {
        let overdue = &mut self.due.overdue;
        let rest = overdue.split_off(overdue.len().min(OVERDUE_AT_MOST));
        std::mem::replace(overdue, rest)
    }

    /// Takes back leases that were not checked.
    pub(crate) fn take_back(&mut self, job_ids: Vec<i64>) {
        self.due.overdue.extend(job_ids);
    }

    /// Returns whether leases that seem overdue are left.
    pub(crate) fn has_more(&self) -> bool {
        !self.due.overdue.is_empty()
    }

    pub(crate) fn take_of_wrong_clock(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.due.of_wrong_clock)
    }
}

/// Reads the leases in some pages; returns those at a deadline, and the page to go on with: the
/// first at the end of the table.
fn read(now: Timestamp, latest: Timestamp, pages: Range<u32>) -> (Due, u32) {
    let grace = micros(setting::cancel_grace());
    let far = latest.plus(TOLERANCE_MICROS);
    let mut due = Due::default();
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let view = View::latest();
    let next_page = if leases.pages() > pages.end {
        pages.end
    } else {
        0
    };
    let rows = StoredRows::of_pages(&leases, &view, pages, Leased::ReapAt);
    while rows.next() {
        let job_id = rows.number(Leased::JobId);
        let expires_at = Timestamp(rows.number(Leased::LeaseExpiresAt));
        if expires_at > far {
            let extended_at = rows.get(Leased::ExtendedAt);
            let extended_at =
                extended_at.unwrap_or_else(|| Timestamp(rows.number(Leased::StartedAt)));
            if is_of_wrong_clock(extended_at, expires_at, latest) {
                due.of_wrong_clock.push(job_id);
            }
        }
        let timeout_at = Timestamp(rows.number(Leased::TimeoutAt));
        if expires_at > now && timeout_at > now {
            continue;
        }
        let put_off_until: Option<Timestamp> = rows.get(Leased::ReapAt);
        // A clock that was ahead has put it off for too long.
        let latest_end = now.plus(grace.max(PUT_OFF_MICROS));
        if put_off_until.is_some_and(|until| until > now && until <= latest_end) {
            continue;
        }
        let was_asked = rows.get(Leased::TimedOut) == Some(true);
        let runs_too_long =
            timeout_at <= now && !was_asked && rows.get(Leased::Ahead) != Some(true);
        if runs_too_long {
            due.timed_out.push(job_id);
        }
        let is_spent = (was_asked || runs_too_long && grace == 0) && timeout_at.plus(grace) <= now;
        if expires_at <= now || is_spent {
            due.overdue.push(job_id);
        }
    }
    rows.end();
    view.end();
    leases.close();
    (due, next_page)
}
