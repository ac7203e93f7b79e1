//! Where the reaper looks for leases that are over.
//!
//! Enters: all leases. Leaves: the jobs of those at a deadline. Holds: a lease needs no entry in an
//! index of deadlines, which nearly all jobs would write and delete without anybody reading it, and
//! which a heartbeat would have to move.
//!
//! A *look* reads the leases in the order in which they are stored: 0.1 s for a million. It takes
//! at most a hundredth of the time ([`LOOK_SHARE`]). Ended leases leave dead rows until a vacuum,
//! all those of a long load while a snapshot is held. So a look begins at the page of the first
//! living lease of the look before. Once a second, or less often when that takes long, it begins at
//! the first page, and finds leases in pages that were filled again, and those whose claim was
//! committed late.

use super::heartbeat::is_of_wrong_clock;
use crate::columns::Leased;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp, micros};
use crate::server::table::{StoredRows, Table, View};
use crate::setting;
use std::time::{Duration, Instant};

/// Shortest pause between two looks at all pages.
const WHOLE_PAUSE: Duration = Duration::from_secs(1);
/// The inverse of the share of time that looks may take.
const LOOK_SHARE: u32 = 100;
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
    next_look: Instant,
    next_whole: Instant,
    /// The page of the first living lease.
    first_page: u32,
    due: Due,
    /// The last look was too early.
    skipped: bool,
}

impl Reaper {
    /// For a cycle by hand.
    pub(crate) fn by_hand() -> Self {
        let now = Instant::now();
        Self {
            back_at: None,
            looked_at: None,
            next_look: now,
            next_whole: now,
            first_page: 0,
            due: Due::default(),
            skipped: false,
        }
    }

    /// For a scheduler that starts at `now`.
    pub(crate) fn of_scheduler(now: Timestamp) -> Self {
        Self {
            back_at: Some(now),
            // A scheduler that is paused from the start stands still until it continues.
            looked_at: Some(now),
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

    /// Ends a scheduler's cycle at `now`; returns how long until the next look, if the pause after
    /// the last one is not over.
    pub(crate) fn end(&mut self, now: Timestamp) -> Option<Duration> {
        self.looked_at = Some(now);
        let pause = self.next_look.checked_duration_since(Instant::now());
        pause.filter(|_| self.skipped)
    }

    pub(super) fn back_at(&self) -> Option<Timestamp> {
        self.back_at
    }

    /// Looks for leases at a deadline at `now`, and for those of a clock ahead of `latest`, unless
    /// it is too early or some of the last look are left.
    pub(crate) fn look(&mut self, now: Timestamp, latest: Timestamp) {
        let began = Instant::now();
        self.skipped = began < self.next_look;
        if self.skipped || self.has_more() {
            return;
        }
        let is_whole = began >= self.next_whole;
        let (due, first_page) = read(now, latest, if is_whole { 0 } else { self.first_page });
        self.due = due;
        self.first_page = first_page;
        let end = Instant::now();
        let pause = (end - began) * LOOK_SHARE;
        self.next_look = end + pause;
        if is_whole {
            self.next_whole = end + pause.max(WHOLE_PAUSE);
        }
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

    /// Returns whether leases that seem overdue are left.
    pub(super) fn has_more(&self) -> bool {
        !self.due.overdue.is_empty()
    }

    pub(crate) fn take_of_wrong_clock(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.due.of_wrong_clock)
    }
}

/// Reads the leases from a page on; returns those at a deadline, and the page of the first one.
fn read(now: Timestamp, latest: Timestamp, page: u32) -> (Due, u32) {
    let grace = micros(setting::cancel_grace());
    let far = latest.plus(TOLERANCE_MICROS);
    let mut due = Due::default();
    let mut first_page = None;
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let view = View::latest();
    let rows = StoredRows::from_page(&leases, &view, page);
    while rows.next() {
        first_page.get_or_insert_with(|| rows.page());
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
        if put_off_until.is_some_and(|until| until > now) {
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
    due.timed_out.sort_unstable();
    due.overdue.sort_unstable();
    (due, first_page.unwrap_or(0))
}
